"""Reduces the gradients of an optimizer's parameters while backward() still runs.

A hook on every parameter counts its bucket down; the bucket that has all its gradients is submitted at
once, and synchronize() waits for what is then still under way. The first step after init() only looks:
which gradients are sparse is known at its end, and decides what is in which bucket from then on.
"""

from __future__ import annotations

import functools
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from gorun import basics, errors
from gorun.collectives import before_join, element_type
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
        self._plan: list[Bucket | Loose] = []
        self._world: World | None = None
        self._failure: Exception | None = None  # the first that a hook had, until it is raised
        self._log: autotune.Log | None = None
        for name, parameter in named:
            if parameter.requires_grad:
                self._watch(name, parameter)
        before_join(self)

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that share the gradients."""
        return self._reduction.process_set

    @property
    def under_way(self) -> bool:
        """Report whether backward() ran since the last synchronize()."""
        return any(slot.passes for slot in self._slots.values())

    def adopt(self, parameters: Iterable[torch.Tensor]) -> None:
        """Take parameters too that came, or need a gradient, only now."""
        for parameter in parameters:
            if id(parameter) not in self._slots and parameter.requires_grad:
                self._watch(f"noname.{len(self._slots)}", parameter)

    def _watch(self, name: str, parameter: torch.Tensor) -> None:
        slot = self._slots[id(parameter)] = Slot(name, parameter)
        self._hooks.append(_on_gradient(parameter, functools.partial(_arrived, weakref.ref(self), slot)))

    def arrived(self, slot: Slot) -> None:
        """Count a backward pass of a parameter and, after the last of a step, hand its gradient over.

        A failure is raised where backward() ends: from here it would end it in the middle, and leave other
        ranks without the gradients that are still to come. If it ends in the middle for another reason, the
        failure is left to synchronize().
        """
        try:
            planned = self._world is basics.world()
            if not planned and self._alone():
                return
            if slot.passes >= self.passes:
                raise AssertionError(TOO_MANY_PASSES)
            slot.passes += 1
            if self._log is not None:
                self._log.begin()
            if planned and slot.passes == self.passes and slot.unit is not None:
                slot.unit.add(slot)
            # else this step shows what there is, and synchronize() hands all gradients over
        except Exception as failure:
            if self._failure is None:
                self._failure = failure
                torch.autograd.Variable._execution_engine.queue_callback(self._raise)

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame, and the script's

    def synchronize(self) -> None:
        """Submit what is missing, wait for all, and leave the reduced gradients in the parameters.

        If Ctrl-C cuts it short, the step goes on with the next call.
        """
        if not self._alone():
            try:
                self._extend_plan(basics.world())
                self._complete()
                if self._log is not None:
                    self._log.end(sum(_nbytes(slot.parameter) for slot in self._slots.values()))
            except Exception:
                self._reset()
                raise
            self._reset()

    def _reset(self) -> None:
        for unit in self._plan:
            unit.renew()
        for slot in self._slots.values():
            slot.passes = 0

    def forget(self) -> None:
        """Drop everything about the current step. What is under way ends unnoticed."""
        self._world = None
        self._failure = None
        for slot in self._slots.values():
            slot.passes = 0

    def _alone(self) -> bool:
        return self.process_set.size() == 1 or not self.process_set.included()

    def _complete(self) -> None:
        failure, self._failure = self._failure, None
        # All must end, whatever happens to one of them, before the gradients may be touched again.
        for act in [unit.add_missing for unit in self._plan] + [unit.finish for unit in self._plan]:
            try:
                act()
            except Exception as error:
                failure = failure or error
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame, and the script's

    def due(self) -> bool:
        """Report whether the agreement of the first step is still to come."""
        if self.process_set.process_set_id is None or self._alone():
            return False
        return self._world is not basics.world() and bool(self._slots)

    def begin(self) -> Callable[[], None]:
        """Begin that agreement, and return what ends it."""
        return self._begin_plan(basics.world())

    def _extend_plan(self, world: World) -> None:
        """Assign the parameters that are new, or all in a new world, to units."""
        self._begin_plan(world)()

    def _begin_plan(self, world: World) -> Callable[[], None]:
        if self._world is not world:
            if self._world is None and self._log is None:
                self._log = autotune.log(_capacity())
            self._world = world
            self._plan = []
            for slot in self._slots.values():
                slot.unit = None
        slots = [slot for slot in self._slots.values() if slot.unit is None]
        if not slots:
            return lambda: None
        prefix = f"gradients.{world.serial(f'gradients.{self.process_set.group()}')}"
        agreed = self._agree(slots, prefix)

        def finish() -> None:
            self._plan += self._make_plan(world, slots, agreed(), prefix)

        return finish

    def _make_plan(
        self, world: World, slots: Sequence[Slot], sparse_dims: Sequence[int], prefix: str
    ) -> list[Bucket | Loose]:
        how = self._reduction
        plan: list[Bucket | Loose] = []
        dense: list[tuple[Slot, torch.dtype]] = []
        for slot, sparse_dim in reversed(list(zip(slots, sparse_dims))):  # the last layer is ready first
            wire = wire_type(how.compression, slot.parameter.dtype)
            if sparse_dim or wire is None:
                plan.append(Loose(f"{prefix}.{slot.name}", slot, sparse_dim, how))
            else:
                dense.append((slot, wire))
        for i, (members, wire) in enumerate(self._deal(dense)):
            rest = f"+{len(members) - 1}" if len(members) > 1 else ""
            plan.append(Bucket(world, f"allreduce.{prefix}.{i}.{members[0].name}{rest}", members, wire, how))
        return plan

    def _agree(self, slots: Sequence[Slot], name: str) -> Callable[[], list[int]]:
        """Begin to agree on each gradient's number of sparse dimensions, 0 for a dense one, as any rank has
        seen it; what is returned waits for it.

        Ranks without a gradient learn of it from the others. And ranks whose models differ would wait for
        each other's gradients for ever; here, once, that is an error.
        """
        model = [(slot.name, tuple(slot.parameter.shape), str(slot.parameter.dtype)) for slot in slots]
        mine = [0 if self._sparse_as_dense else _sparse_dim(slot.parameter.grad) for slot in slots]
        gathered = allgather_object_async((model, mine), name, self.process_set)

        def judge() -> list[int]:
            answers = gathered()
            for rank, (other, _) in zip(self.process_set.members(), answers):
                difference = [pair for pair in itertools.zip_longest(model, other) if pair[0] != pair[1]]
                if difference:
                    text = (
                        f"the optimizer's parameters differ from those of rank {rank}: "
                        f"{difference[0][0]} here, {difference[0][1]} there"
                    )
                    raise HorovodInternalError(text) from errors.Mismatch(text)
            return [max(dims) for dims in zip(*(dims for _, dims in answers))]

        return judge

    def _deal(self, dense: Sequence[tuple[Slot, torch.dtype]]) -> list[tuple[list[Slot], torch.dtype]]:
        """Deal parameters out to buckets: those of a group of the user's to one, the others by size."""
        group_of = {key: i for i, group in enumerate(self._groups) for key in group}
        grouped: dict[Any, list[int]] = {}
        single: list[int] = []
        kinds: list[Any] = []
        for i, (slot, wire) in enumerate(dense):
            parameter = slot.parameter
            # Gradients share memory only if they have type and device in common.
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


def _arrived(reducer: weakref.ref[Reducer], slot: Slot, *_: Any) -> None:
    alive = reducer()
    if alive is not None:  # else its optimizer is gone, and the parameters are another's
        alive.arrived(slot)


def _on_gradient(parameter: torch.Tensor, hook: Any) -> Any:
    """Call hook each time backward() has added to the parameter's gradient. Return what keeps it alive."""
    register = getattr(parameter, "register_post_accumulate_grad_hook", None)
    if register is not None:
        return register(hook)
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    accumulator.register_hook(hook)
    return accumulator
