"""DistributedOptimizer: any torch optimizer, stepping with gradients reduced over the ranks."""

from __future__ import annotations

import collections
import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Callable

import torch

from gorun.collectives import Adasum, Average
from gorun.counters import counters
from gorun.features import split_list
from gorun.process_sets import ProcessSet, global_process_set
from gorun.torch import mpi_ops
from gorun.torch.buckets import Reduction
from gorun.torch.compression import Compression
from gorun.torch.reducer import Reducer

SYNCHRONIZED_TWICE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
    "if you use optimizer.synchronize() in your code."
)
ZEROED_TOO_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(). This is prohibited as it can cause a race condition."
)

_SCALERS = ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler")


class _DistributedOptimizer:
    """The base class that DistributedOptimizer puts before the class of the wrapped optimizer."""

    _reducer: Reducer | None = None  # a copy of the optimizer has none, and steps by itself
    _should_synchronize = True
    _synchronized = False
    _unscaled = False  # by a GradScaler, since the gradients were reduced
    _watch: Any = None  # a weak reference to the Steps of a TorchState, which follows this optimizer
    # The arguments of DistributedOptimizer, for scripts that read them.
    _parameter_names: Mapping[torch.Tensor, str] = MappingProxyType({})
    op: int
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameters and options."""
        # A GradScaler looks here for gradients to unscale, in its unscale_() or step(), and nowhere else
        # before step(). They must not change while they are reduced, and must be equal on all ranks.
        if sys._getframe(1).f_globals.get("__name__") in _SCALERS and self._should_synchronize:
            # The gradients of a step that it skipped are gone, if there was a backward pass since.
            if not self._synchronized or (self._reducer is not None and self._reducer.under_way):
                self.synchronize()
            self._unscaled = True
        return self.__dict__["param_groups"]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes whose gradients are added up before they are reduced."""
        return self._reducer.passes if self._reducer else 1

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        if self._reducer is not None:
            self._reducer.passes = passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set how many backward passes are added up locally before the gradients are reduced."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Wait until every gradient is reduced. To clip gradients, do so after this."""
        if self._reducer is not None:
            self._reduce()
        self._synchronized = True

    @property
    def _replaced(self) -> bool:
        """Report whether a script has overridden synchronize(); step() then calls the script's."""
        ours = _DistributedOptimizer.synchronize
        return "synchronize" in self.__dict__ or type(self).synchronize is not ours

    def _reduce(self) -> None:
        if self._synchronized:  # by the script: they are reduced again
            self._reducer.used()
            self._synchronized = False
        self._reducer.adopt(_parameters(self))  # new ones, from add_param_group() or requires_grad_()
        if not self._reducer.reduced:  # otherwise this continues a call that Ctrl-C cut short
            self._reducer.synchronize()
        steps = self._watch and self._watch()
        if steps is not None:
            steps.summed()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let step() use the gradients as they are."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Wait for the gradients and step. A closure's gradients are reduced each time it is evaluated."""
        if self._reducer is None:
            return super().step(closure, **kwargs)
        if self._should_synchronize and closure is not None:
            closure = self._reduced(closure)
        elif self._should_synchronize and not self._unscaled:
            if self._synchronized:
                warnings.warn(SYNCHRONIZED_TWICE, stacklevel=2)
            if self._replaced:
                self.synchronize()
            else:
                self._reduce()
        steps = self._watch and self._watch()
        summed = self._should_synchronize or self._reducer.ready
        self._synchronized = self._unscaled = False
        try:
            loss = None
            if steps is None or steps.before_update(closure is not None, summed):
                loss = super().step(closure, **kwargs)
            if steps is not None:
                steps.after_update()
            self._reducer.used()
            counters.step()
            return loss
        finally:
            self._synchronized = self._unscaled = False

    def _reduced(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            loss = closure()
            self.synchronize()
            # LBFGS decides by the loss how often it evaluates, so all ranks must see the same loss.
            if isinstance(self, torch.optim.LBFGS):
                process_set = self._reducer.process_set
                loss = mpi_ops.allreduce(torch.as_tensor(loss).detach(), process_set=process_set)
            return loss

        return evaluate

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Reset the gradients; takes the arguments of the wrapped optimizer (set_to_none)."""
        if self._reducer is not None:
            if self._reducer.under_way:
                raise AssertionError(ZEROED_TOO_EARLY)
            self._reducer.used()
        if self._unscaled:  # by a GradScaler, which then skipped the step
            self._synchronized = self._unscaled = False
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load a state, and forget the gradients of the current step."""
        self._forget()
        super().load_state_dict(*args, **kwargs)

    def _forget(self) -> None:
        if self._reducer is not None:
            self._reducer.forget()
        self._synchronized = self._unscaled = False
        self._should_synchronize = True


class _DistributedAdasumOptimizer:
    """DistributedOptimizer for op=Adasum: it combines the ranks' optimizer steps, not their gradients."""

    # Scripts read it, too. A copy of the optimizer has none, and steps by itself.
    _parameter_names: Mapping[torch.Tensor, str] = MappingProxyType({})
    _compression: Any = Compression.none
    _passes = 1

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes whose gradients are added up before a step."""
        return self._passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self._passes = passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set how many backward passes are added up before a step."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Do nothing: nothing is under way before step()."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raise AssertionError, as Horovod does."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Step, and replace the change of each parameter by the Adasum of all ranks' changes."""
        named = [(name, p) for p, name in self._parameter_names.items() if p.requires_grad]
        before = [p.detach().clone() for _, p in named]
        loss = super().step(closure, **kwargs)
        with torch.no_grad():
            started = []
            for (name, parameter), start in zip(named, before):
                moved, ctx = self._compression.compress(parameter - start)
                handle = mpi_ops.allreduce_async_(moved, name=f"adasum.{name}", op=Adasum)
                started.append((handle, ctx))
            for (_, parameter), start, (handle, ctx) in zip(named, before, started):
                parameter.copy_(start + self._compression.decompress(mpi_ops.synchronize(handle), ctx))
        counters.step()
        return loss


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer like the given one that reduces the gradients over the ranks before each step.

    Its class is a subclass of the optimizer's class, and it shares the optimizer's state. All ranks take part
    in all reductions: a parameter without a gradient in a step contributes zeros, and gets the result.

    named_parameters: names for the reductions only; all parameters, or None.
    compression: Compression.none, .fp16, .bf16 or a Compressor.
    backward_passes_per_step: backward passes whose gradients are added up before they are reduced.
    op: Average, Sum, Min, Max, Product, or Adasum, which combines the optimizers' steps instead of gradients
    (see _DistributedAdasumOptimizer).
    gradient_predivide_factor: for Average, divide by this before adding up, and by the rest after it.
    groups: a number of groups, or lists of parameters; a group is reduced as one. num_groups is its old name.
    sparse_as_dense: reduce sparse gradients as dense ones; the parameters get them sparse again.

    Raises ValueError for an optimizer that is wrapped already, and for options that exclude each other.
    """
    if isinstance(optimizer, (_DistributedOptimizer, _DistributedAdasumOptimizer)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups != 0:
        text = "Parameter `num_groups` has been replaced by `groups`."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    named = _check_names(optimizer, named_parameters)
    names = {parameter: name for name, parameter in named}
    if op == Adasum:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support process sets")
        return _wrap(
            optimizer,
            _DistributedAdasumOptimizer,
            _parameter_names=names,
            _compression=compression,
            _passes=backward_passes_per_step,
        )
    reduction = Reduction(
        op, 1.0 / gradient_predivide_factor, gradient_predivide_factor, compression, process_set
    )
    reducer = Reducer(
        named, reduction, backward_passes_per_step, _check_groups(groups, named), sparse_as_dense
    )
    return _wrap(
        optimizer, _DistributedOptimizer, _reducer=reducer, _parameter_names=names, op=op,
        process_set=process_set, gradient_predivide_factor=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
    )  # fmt: skip


def _wrap(optimizer: torch.optim.Optimizer, what: type, **attributes: Any) -> Any:
    base = optimizer.__class__
    distributed = type(base.__name__, (what, base), {})
    wrapped = distributed.__new__(distributed)
    # The attributes are shared, not copied: a scheduler made for the wrapped optimizer still sets the rate of
    # this one. What such a scheduler laid over methods stays behind, it would call the wrapped ones.
    wrapped.__dict__.update(optimizer.__dict__)
    for name in ("step", "zero_grad"):
        wrapped.__dict__.pop(name, None)
    wrapped.__dict__.update(attributes)
    return wrapped


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _check_names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> list[tuple[str, torch.Tensor]]:
    """Return the optimizer's parameters with their names."""
    if named_parameters is None:
        return [
            (f"allreduce.noname.{i}.{j}", parameter)
            for i, group in enumerate(optimizer.param_groups)
            for j, parameter in enumerate(group["params"])
        ]
    named = list(named_parameters)
    if not all(isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), "
            "usually produced by model.named_parameters()."
        )
    duplicates = sorted(name for name, n in collections.Counter(name for name, _ in named).items() if n > 1)
    if duplicates:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(duplicates)}"
        )
    name_of = {id(parameter): name for name, parameter in named}
    missing = [str(id(p)) for p in _parameters(optimizer) if id(p) not in name_of]
    if missing:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(missing)}"
        )
    # In the order of the model, without parameters that the optimizer does not have.
    mine = {id(p) for p in _parameters(optimizer)}
    return [(name, parameter) for name, parameter in named if id(parameter) in mine]


def _check_groups(
    groups: int | Sequence[Sequence[torch.Tensor]] | None, named: Sequence[tuple[str, torch.Tensor]]
) -> list[list[torch.Tensor]]:
    """Return the lists of parameters to reduce together."""
    if groups is None or groups == 0:
        return []
    parameters = [parameter for _, parameter in named if parameter.requires_grad]
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
        return [part for part in split_list(parameters, groups) if part]
    if not isinstance(groups, (list, tuple)) or not all(
        isinstance(p, torch.Tensor) for group in groups for p in group
    ):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    grouped = [id(p) for group in groups for p in group]
    if len(set(grouped)) < len(grouped):
        raise ValueError("A parameter can only appear once in groups.")
    return [list(group) for group in groups]
