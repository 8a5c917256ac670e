"""Reduces the gradients of an optimizer's parameters while backward() still runs.

A hook on every parameter reports its gradient to a bucket. The last gradient submits the bucket, and
synchronize() waits for the buckets under way. The first step after init() submits nothing early: only at its
end do the ranks know which gradients are sparse, and assign parameters to buckets.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from gorun import basics, errors
from gorun.bindings import element_type
from gorun.collectives import before_join
from gorun.exceptions import HorovodInternalError
from gorun.objects import allgather_object_async
from gorun.process_sets import ProcessSet
from gorun.torch import autotune
from gorun.torch.buckets import Bucket, Loose, Reduction, Slot, fill
from gorun.torch.compression import wire_type
from gorun.torch.memory import type_name
from gorun.world import World

# Large enough that the cost of a request, some 100 us, is small against its transfer; small enough that
# most of a model is on its way before backward() ends.
BUCKET_BYTES = 25 << 20
FIRST_BUCKET_BYTES = 1 << 20

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
    "backward_passes_per_step to accumulate gradients locally."
)

SAME_EVERYWHERE = (
    "every rank must have the same parameters in its optimizer, and add_param_group() or requires_grad_() "
    "before the same step"
)


class _Step:
    """The progress of a step. The next one is complete when it is stored: Ctrl-C leaves one or the other."""

    def __init__(self, units: Iterable[Bucket | Loose] = (), fresh: bool = False) -> None:
        self.passes: dict[Slot, int] = {}  # of backward()
        self.missing = {unit: set(unit.slots) for unit in units}  # of all units, in their order
        self.failure: Exception | None = None  # the first, until it is raised
        self.fresh = fresh  # the gradients are reduced, but not used yet


class Agreement:
    """An agreement of all ranks on the number of sparse dimensions of each gradient; 0 means dense.

    It tells ranks without a gradient what the others have. It also finds ranks whose models differ, once, and
    reports an error instead of letting them wait for each other's gradients. After Ctrl-C the next call
    resumes the wait.
    """

    def __init__(self, slots: Sequence[Slot], prefix: str, meeting: tuple[str, str]) -> None:
        """prefix: of the names of these gradients; meeting: kind and name of the operation."""
        self.prefix = prefix
        self.slots = slots
        self._kind, self._name = meeting
        self._model = [(slot.name, tuple(slot.parameter.shape), str(slot.parameter.dtype)) for slot in slots]
        self._gathered: Callable[[], list[Any]] | None = None

    def begin(self, process_set: ProcessSet) -> None:
        """Start, unless that is done."""
        if self._gathered is None:
            mine = [_sparse_dim(slot.parameter.grad) for slot in self.slots]
            self._gathered = self._cut_short  # after Ctrl-C: it may be submitted, and must not be again
            try:
                self._gathered = allgather_object_async(
                    (self._model, mine), self._name, process_set, self._kind
                )
            except Exception:
                self._gathered = None
                raise

    def _cut_short(self) -> list[Any]:
        raise HorovodInternalError(f"agree on {self._name}: interrupted while it was submitted")

    def end(self, process_set: ProcessSet) -> list[int]:
        """Wait for all ranks."""
        answers = self._gathered()
        for rank, (other, _) in zip(process_set.members(), answers):
            difference = [pair for pair in itertools.zip_longest(self._model, other) if pair[0] != pair[1]]
            if difference:
                text = (
                    f"the optimizer's parameters differ from those of rank {rank}: "
                    f"{difference[0][0]} here, {difference[0][1]} there"
                )
                raise HorovodInternalError(text) from errors.Mismatch(text)
        return [max(dims) for dims in zip(*(dims for _, dims in answers))]


class Reducer:
    """The gradients of some parameters, each with a name of its own."""

    def __init__(
        self,
        named: Sequence[tuple[str, torch.Tensor]],
        reduction: Reduction,
        passes: int = 1,
        groups: Sequence[Sequence[torch.Tensor]] = (),
        sparse_as_dense: bool = False,
    ) -> None:
        self.passes = passes
        self._reduction = reduction
        self._sparse_as_dense = sparse_as_dense
        self._groups = [[id(parameter) for parameter in group] for group in groups]
        self._slots: dict[int, Slot] = {}
        self._hooks: list[Any] = []
        self._step = _Step()
        self._world: World | None = None  # the one of the plan
        self._prefix = ""  # of the names in the plan
        self._agreement: Agreement | None = None  # under way
        self._log: autotune.Log | None = None
        for name, parameter in named:
            if parameter.requires_grad:
                self._watch(name, parameter)
        before_join(self)
        # A unit and its slots name each other, and would wait for Python's collector.
        weakref.finalize(self, _leave_units, self._slots).atexit = False

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that share the gradients."""
        return self._reduction.process_set

    @property
    def under_way(self) -> bool:
        """Report whether backward() ran since the last synchronize()."""
        return bool(self._step.passes)

    @property
    def reduced(self) -> bool:
        """Report whether the gradients are unchanged and unused since synchronize()."""
        return self._step.fresh and not self._step.passes

    @property
    def ready(self) -> bool:
        """Report whether the gradients are the same on all ranks."""
        return self.reduced or self._alone()

    def used(self) -> None:
        """Note that the optimizer has stepped with the reduced gradients, or dropped them."""
        self._step.fresh = False

    def adopt(self, parameters: Iterable[torch.Tensor]) -> None:
        """Add parameters that are new, or that need a gradient only now."""
        for parameter in parameters:
            if id(parameter) not in self._slots and parameter.requires_grad:
                self._watch(f"noname.{len(self._slots)}", parameter)

    def _watch(self, name: str, parameter: torch.Tensor) -> None:
        slot = self._slots[id(parameter)] = Slot(name, parameter)
        hook = functools.partial(_arrived, weakref.ref(self), slot)
        self._hooks.append(_on_gradient(parameter, hook, self))

    def arrived(self, slot: Slot) -> None:
        """Count a backward pass of a parameter. After the last pass of a step, submit its gradient.

        A failure is raised at the end of backward(). Raised here it would stop backward() halfway, and the
        other ranks would miss the remaining gradients. If something else stops backward(), synchronize()
        raises the failure.
        """
        try:
            planned = self._planned(basics.world())
            if not planned and self._alone():
                return
            step = self._step
            passes = step.passes.get(slot, 0) + 1
            if passes > self.passes:
                raise AssertionError(TOO_MANY_PASSES)
            step.passes[slot] = passes
            if self._log is not None:
                self._log.begin()
            if planned and passes == self.passes:
                missing = step.missing.get(slot.unit)
                if missing is not None:
                    slot.unit.add(slot, missing)
            # otherwise this step shows which there are, and synchronize() submits all gradients
        except Exception as failure:
            if self._step.failure is None:
                self._step.failure = failure
                torch.autograd.Variable._execution_engine.queue_callback(self._raise)

    def _raise(self) -> None:
        failure, self._step.failure = self._step.failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame, and the script's

    def synchronize(self) -> None:
        """Submit missing gradients, wait for all, and store the reduced gradients in the parameters.

        If Ctrl-C interrupts it before the gradients are reduced, the next call continues the step.
        """
        if not self._alone():
            try:
                self._reduce(basics.world())
                if self._log is not None:
                    self._log.end(sum(_nbytes(slot.parameter) for slot in self._slots.values()))
            except Exception as error:
                self._step = _Step(self._step.missing)
                if isinstance(error.__cause__, errors.Mismatch):
                    text = f"{error}; {SAME_EVERYWHERE}"
                    raise HorovodInternalError(text) from errors.Mismatch(text)
                raise
            self._step = _Step(self._step.missing, fresh=True)

    def forget(self) -> None:
        """Drop this rank's gradients of the current step, but keep the plan that all ranks share.

        If backward() has submitted gradients, reduce them first: the other ranks wait for them.
        """
        reduced = False
        with contextlib.suppress(Exception):
            if self._planned(basics.world()) and self.passes in self._step.passes.values():
                self._complete()
                reduced = True
        self._step = _Step(self._step.missing, fresh=reduced)

    def _planned(self, world: World) -> bool:
        return self._world is world and self._agreement is None

    def _reduce(self, world: World) -> None:
        if self._planned(world):
            self._complete()  # before any agreement: other ranks may have nothing to agree on
        if not self._planned(world) or self._incomplete():
            self._begin_plan(world)()
            self._complete()

    def _alone(self) -> bool:
        return self.process_set.size() == 1 or not self.process_set.included()

    def _complete(self) -> None:
        units = self._step.missing.items()
        # All must end, whatever happens to one of them, before the gradients may change again.
        acts = [functools.partial(unit.add, slot, missing) for unit, missing in units for slot in missing]
        for act in acts + [unit.finish for unit, _ in units]:
            try:
                act()
            except Exception as error:
                self._step.failure = self._step.failure or error
        if self._step.failure is not None:
            raise self._step.failure

    def due(self) -> bool:
        """Report whether the agreement of the first step is still to come."""
        if self.process_set.process_set_id is None or self._alone():
            return False
        return self._world is not basics.world() and bool(self._slots)

    def begin(self) -> Callable[[], None]:
        """Start that agreement, and return a function that ends it."""
        return self._begin_plan(basics.world())

    def _incomplete(self) -> bool:
        return sum(len(unit.slots) for unit in self._step.missing) < len(self._slots)

    def _begin_plan(self, world: World) -> Callable[[], None]:
        """Start to assign new parameters, or all in a new world, to units; return a function that ends it."""
        if self._world is not world:
            if self._world is None and self._log is None:
                self._log = autotune.log(_capacity())
            self._agreement, self._step.missing = None, {}
            _leave_units(self._slots)  # the old ones are in the old world's memory
            self._world = world
        if not self._incomplete():
            self._agreement = None
            return lambda: None
        if self._agreement is None:
            missing = self._step.missing
            self._agreement = self._meet(world, [s for s in self._slots.values() if s.unit not in missing])
        self._agreement.begin(self.process_set)
        return self._end_plan

    def _meet(self, world: World, slots: Sequence[Slot]) -> Agreement:
        """Return the agreement on some parameters.

        An agreement that extends a plan uses the name of an operation that every rank submits in its next
        step. If only some ranks have new parameters, it meets that operation of the others, and all ranks get
        an error.
        """
        if not self._step.missing:
            self._prefix = f"gradients.{world.serial(f'gradients.{self.process_set.group()}')}"
            return Agreement(slots, self._prefix, ("allgather_object", self._prefix))
        planned = len(self._slots) - len(slots)
        return Agreement(slots, f"{self._prefix}+{planned}", next(iter(self._step.missing)).operation)

    def _end_plan(self) -> None:
        agreement = self._agreement
        try:
            sparse_dims = agreement.end(self.process_set)
        except Exception:
            self._agreement = None
            raise
        missing = dict(self._step.missing)
        for unit in self._make_plan(self._world, agreement.slots, sparse_dims, agreement.prefix):
            missing[unit] = set(unit.slots)
        self._step.missing = missing
        self._agreement = None

    def _make_plan(
        self, world: World, slots: Sequence[Slot], sparse_dims: Sequence[int], prefix: str
    ) -> list[Bucket | Loose]:
        how = self._reduction
        plan: list[Bucket | Loose] = []
        dense: list[tuple[Slot, torch.dtype]] = []
        for slot, sparse_dim in reversed(list(zip(slots, sparse_dims))):  # the last layer is ready first
            wire = wire_type(how.compression, slot.parameter.dtype)
            slot.sparse_dim, as_dense = sparse_dim, self._sparse_as_dense or not sparse_dim
            if not as_dense or wire is None:
                plan.append(Loose(f"{prefix}.{slot.name}", slot, as_dense, how))
            else:
                dense.append((slot, wire))
        for i, (members, wire) in enumerate(self._deal(dense)):
            rest = f"+{len(members) - 1}" if len(members) > 1 else ""
            plan.append(Bucket(world, f"{prefix}.{i}.{members[0].name}{rest}", members, wire, how))
        return plan

    def _deal(self, dense: Sequence[tuple[Slot, torch.dtype]]) -> list[tuple[list[Slot], torch.dtype]]:
        """Assign parameters to buckets: each group of the user's to one, the others by size."""
        group_of = {key: i for i, group in enumerate(self._groups) for key in group}
        grouped: dict[Any, list[int]] = {}
        single: list[int] = []
        kinds: list[Any] = []
        for i, (slot, wire) in enumerate(dense):
            parameter = slot.parameter
            # Gradients share memory only if their type and device are equal.
            kinds.append((str(parameter.device), type_name(parameter.dtype), type_name(wire)))
            group = group_of.get(id(parameter))
            if group is None:
                single.append(i)
            else:
                grouped.setdefault((group, kinds[i]), []).append(i)
        sizes = [(kinds[i], dense[i][0].parameter.numel() * _itemsize(dense[i][1])) for i in single]
        buckets = [[single[i] for i in bucket] for bucket in fill(sizes, _capacity(), FIRST_BUCKET_BYTES)]
        buckets += grouped.values()
        return [([dense[i][0] for i in bucket], dense[bucket[0]][1]) for bucket in buckets]


def _sparse_dim(grad: torch.Tensor | None) -> int:
    return grad.sparse_dim() if grad is not None and grad.is_sparse else 0


def _capacity() -> int:
    return int(os.environ.get("HOROVOD_FUSION_THRESHOLD") or BUCKET_BYTES)


def _nbytes(parameter: torch.Tensor) -> int:
    return parameter.numel() * parameter.element_size()


def _itemsize(dtype: torch.dtype) -> int:
    return element_type(type_name(dtype))[1]


def _leave_units(slots: dict[int, Slot]) -> None:
    for slot in slots.values():
        slot.unit = slot.home = slot.view = None


def _arrived(reducer: weakref.ref[Reducer], slot: Slot, *_: Any) -> None:
    alive = reducer()
    if alive is not None:  # otherwise its optimizer is gone, and another one has the parameters
        alive.arrived(slot)


def _on_gradient(parameter: torch.Tensor, hook: Any, owner: object) -> Any:
    """Call hook each time backward() has added to the parameter's gradient, as long as the owner lives and
    keeps what is returned."""
    register = getattr(parameter, "register_post_accumulate_grad_hook", None)
    if register is not None:
        handle = register(hook)  # the parameter keeps it, and with it the memory of the slot's bucket
        weakref.finalize(owner, handle.remove).atexit = False
        return handle
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    accumulator.register_hook(hook)
    return accumulator
