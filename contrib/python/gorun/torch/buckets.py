"""Gradients under way: several parameters in one piece of arena memory, or one by itself.

A unit collects the gradients of its slots. When it has all of them it submits them, and later stores the
reduced gradients. The parameters alone decide the units and their names, so all ranks have the same.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

from gorun import constants
from gorun.bindings import element_type
from gorun.collectives import Average
from gorun.exceptions import HorovodInternalError
from gorun.layout import pack
from gorun.process_sets import ProcessSet, global_process_set
from gorun.torch import cuda, gpu, mpi_ops
from gorun.torch.compression import Compression
from gorun.torch.memory import is_dense, strided_view, tensor_over, type_name
from gorun.torch.ongoing import Ongoing
from gorun.world import Operation, World


@dataclass
class Reduction:
    """How gradients are reduced."""

    op: int = Average
    prescale: float = 1.0
    postscale: float = 1.0
    compression: Any = Compression.none
    process_set: ProcessSet = field(default_factory=lambda: global_process_set)


class Slot:
    """One parameter and the place of its gradient."""

    __slots__ = ("address", "home", "name", "parameter", "sparse_dim", "unit", "view")

    def __init__(self, name: str, parameter: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.sparse_dim = 0  # of its gradient, 0 for a dense one, however it is sent
        self.unit: Bucket | Loose | None = None
        self.home: torch.Tensor | None = None  # its place in a bucket
        self.address = 0  # of home
        self.view: torch.Tensor | None = None  # home as a gradient; scripts may give it other data


def fill(sizes: Iterable[tuple[Any, int]], capacity: int, first: int) -> list[list[int]]:
    """Distribute items, given as (kind, bytes), to buckets of one kind each; return their indexes.

    A bucket is full at capacity bytes. The first bucket of a kind is full at first bytes, so that the
    gradients that are ready first start to travel early.
    """
    buckets: list[list[int]] = []
    open_buckets: dict[Any, tuple[list[int], int]] = {}
    limits: dict[Any, int] = {}
    for i, (kind, nbytes) in enumerate(sizes):
        bucket, used = open_buckets.pop(kind, ([], 0))
        if not bucket:
            buckets.append(bucket)
        bucket.append(i)
        if used + nbytes < limits.get(kind, min(first, capacity)):
            open_buckets[kind] = bucket, used + nbytes
        else:
            limits[kind] = capacity
    return buckets


class Bucket:
    """Dense gradients in one block, reduced by one request.

    Gradients that travel in their own type are views of the block: backward() adds to them in place, without
    a copy. If backward() makes a new gradient, the bucket copies it in while it is in cache. Other gradients
    (compression, a GPU, a model that changed its type) are converted in and out; cuda.py does it for GPUs.
    """

    def __init__(
        self, world: World, name: str, slots: Sequence[Slot], wire: torch.dtype, reduction: Reduction
    ) -> None:
        self.slots = slots
        self.operation = "allreduce", name  # kind and name
        self._world = world
        self._reduction = reduction
        parameters = [slot.parameter for slot in slots]
        self._group = None  # reduces the gradients where they are, in memory of the GPU
        if gpu.reducible(wire, reduction.op, reduction.prescale, reduction.postscale):
            self._group = gpu.group_of(parameters[0], reduction.process_set)
        self._streams: dict[int, torch.cuda.Stream] = {}  # of the gradients, where the group reduces them
        self._copies = None if self._group else cuda.copies(parameters[0].device)
        host = self._copies is None and parameters[0].device.type == "cpu"
        self._direct = (host or self._group is not None) and wire == parameters[0].dtype
        dense = [is_dense(tuple(p.shape), p.stride()) for p in parameters]
        layout = pack([tuple(p.shape) for p in parameters],
                      detail=[p.stride() if ok else None for p, ok in zip(parameters, dense)])  # fmt: skip
        self._dtype, itemsize = element_type(type_name(wire))
        self._count, self._signature = max(layout.used, 1), layout.signature
        if self._group is not None:
            self._flat = torch.empty(self._count, dtype=wire, device=parameters[0].device)
        else:
            self._block = world.alloc(self._count * itemsize)
            if self._copies is not None:
                self._copies.pin(self._block.home())
                # The GPU may still read the block when the operation no longer needs it.
                weakref.finalize(self, self._copies.settle).atexit = False
            self._flat = tensor_over(self._block, wire, self._count)
        self._flat.zero_()
        self._sparse = [slot for slot in slots if slot.sparse_dim]
        self._operation: Operation | Ongoing | None = None  # under way
        self._handle: int | None = None  # of the operation
        for slot, offset in zip(slots, layout.offsets):
            slot.unit, slot.home = self, strided_view(self._flat, offset, slot.parameter)
            slot.view, slot.address = slot.home.detach(), slot.home.data_ptr()

    def add(self, slot: Slot, missing: set[Slot]) -> None:
        """Take a slot's gradient, and submit the bucket if no other is missing.

        Every gradient of every step comes here. Most lie in the block already and are only counted.
        """
        grad = slot.parameter.grad
        if self._operation is None or not self._operation.begun():  # not submitted before a Ctrl-C
            if grad is not slot.view or grad.data_ptr() != slot.address:
                self._take(slot, grad)
            if self._group is not None:
                gpu.note_stream(self._streams, self._flat)
            if len(missing) == 1 and slot in missing:
                self._submit()
        # If that fails, the slot still counts as missing, and synchronize() tries again.
        missing.discard(slot)

    def _take(self, slot: Slot, grad: torch.Tensor | None) -> None:
        parameter, home = slot.parameter, slot.home
        if grad is None:
            home.zero_()  # another rank may have one
        else:
            if grad.is_sparse and not slot.sparse_dim:  # the ranks have agreed on a dense one
                slot.sparse_dim = grad.sparse_dim()
                self._sparse.append(slot)
            dense = (grad.to_dense() if grad.is_sparse else grad).detach()
            if dense.shape != home.shape:
                was, now = tuple(home.shape), tuple(dense.shape)
                raise ValueError(f"the gradient of {slot.name} has shape {now}, and in the first step {was}")
            if self._copies is not None:
                self._copies.out(dense, home)
            else:
                home.copy_(dense)
        if slot.view.data_ptr() != slot.address:
            slot.view = home.detach()
        same = parameter.device == home.device and parameter.dtype is home.dtype
        if self._direct and parameter.requires_grad and same:
            parameter.grad = slot.view

    def _submit(self) -> None:
        if self._copies is not None:
            self._copies.wait()
        how = self._reduction
        if self._group is not None:
            gpu.follow_streams(self._streams, self._flat)
            self._operation = gpu.reduce_flat(
                self._world, self._group, self._flat, self.operation[1], how.op, how.prescale, how.postscale,
                self._signature,
            )  # fmt: skip
            self._handle = self._world.launch(self._operation)  # type: ignore[arg-type]
            return
        operation = self._operation = Operation(self._world, how.process_set.group())
        name = ".".join(self.operation)
        operation.request(
            constants.ALLREDUCE, name, self._dtype, (self._count,), self._block, True, keep=True,
            op=how.op, prescale=how.prescale, postscale=how.postscale, root=self._signature,
        )  # fmt: skip
        # The bound method keeps the bucket, so that its memory lasts until the operation ends.
        self._handle = operation.launch(self._landed)

    def _landed(self, _: Any) -> None:
        pass

    def finish(self) -> None:
        """Wait for the reduction and store the gradients; may be repeated after Ctrl-C."""
        try:
            self._land()
        except Exception:
            self._operation = self._handle = None
            raise
        self._operation = self._handle = None

    def _land(self) -> None:
        operation = self._operation
        if operation is None or not operation.begun():
            return
        if self._handle is not None:
            self._world.synchronize(self._handle)
        else:  # Ctrl-C came when it was submitted
            operation.wait()
        away = [s for s in self.slots if s.parameter.grad is not s.view and s.parameter.requires_grad]
        if away:
            self._copy_back(away)
        for slot in self._sparse:
            grad = slot.parameter.grad
            if slot.parameter.requires_grad and not grad.is_sparse:
                slot.parameter.grad = grad.to_sparse(slot.sparse_dim)

    def _copy_back(self, slots: Sequence[Slot]) -> None:
        copies = self._copies
        with torch.no_grad():
            for parameter in [slot.parameter for slot in slots]:
                if parameter.grad is None or parameter.grad.is_sparse:
                    parameter.grad = torch.empty_like(parameter)
            with contextlib.nullcontext() if copies is None else copies.queue():
                for slot in slots:
                    slot.parameter.grad.copy_(slot.home, non_blocking=copies is not None)
        if copies is not None:
            copies.follow()


class Loose:
    """A gradient that travels by itself: a sparse one, or one that the user's own compressor packed."""

    def __init__(self, name: str, slot: Slot, as_dense: bool, reduction: Reduction) -> None:
        self.slots = [slot]
        self.operation = ("allreduce", name) if as_dense else ("allgather", f"sparse.{name}_1of2")
        self._name = name
        self._as_dense = as_dense
        self._reduction = reduction
        self._result: Callable[[], torch.Tensor] | None = None
        slot.unit = self

    def add(self, slot: Slot, missing: set[Slot]) -> None:
        """Take the gradient and submit it."""
        grad = slot.parameter.grad
        if self._result is None:
            self._result = self._cut_short  # after Ctrl-C: it may be submitted, and must not be again
            try:
                with torch.no_grad():
                    start = self._start_dense if self._as_dense else self._start_sparse
                    self._result = start(slot, grad)
            except Exception:
                self._result = None
                raise
        missing.discard(slot)  # only now: synchronize() tries a failed one again

    def _start_sparse(self, slot: Slot, grad: torch.Tensor | None) -> Callable[[], torch.Tensor]:
        if grad is None:  # nothing to add; unlike for a dense one, no zeros need to be sent
            grad = torch.zeros_like(slot.parameter)
        if not grad.is_sparse or grad.sparse_dim() != slot.sparse_dim:  # zero_() makes all of them sparse
            grad = grad.to_dense().to_sparse(slot.sparse_dim)
        return mpi_ops.sparse_allreduce_async(
            grad, self._name, self._reduction.op, self._reduction.process_set
        )

    def _start_dense(self, slot: Slot, grad: torch.Tensor | None) -> Callable[[], torch.Tensor]:
        how = self._reduction
        if grad is None:
            grad = torch.zeros_like(slot.parameter)
        elif grad.is_sparse:
            slot.sparse_dim = slot.sparse_dim or grad.sparse_dim()
            grad = grad.to_dense()
        compressed, ctx = how.compression.compress(grad)
        handle = mpi_ops.allreduce_async_(
            compressed, name=self._name, op=how.op, prescale_factor=how.prescale,
            postscale_factor=how.postscale, process_set=how.process_set,
        )  # fmt: skip
        return lambda: how.compression.decompress(mpi_ops.synchronize(handle), ctx)

    def _cut_short(self) -> torch.Tensor:
        raise HorovodInternalError(f"allreduce {self._name}: interrupted while it was submitted")

    def finish(self) -> None:
        """Wait for the reduction and store the gradient; may be repeated after Ctrl-C."""
        if self._result is None:
            return
        try:
            reduced = self._result()
            if reduced is None:
                raise HorovodInternalError(f"allreduce {self._name}: interrupted when it had ended")
            self._land(reduced)
        except Exception:
            self._result = None
            raise
        self._result = None

    def _land(self, reduced: torch.Tensor) -> None:
        parameter, sparse_dim = self.slots[0].parameter, self.slots[0].sparse_dim
        if sparse_dim and not reduced.is_sparse:
            reduced = reduced.to_sparse(sparse_dim)
        if parameter.grad is None or parameter.grad.is_sparse or reduced.is_sparse:
            parameter.grad = reduced
        else:
            with torch.no_grad():
                parameter.grad.copy_(reduced)
