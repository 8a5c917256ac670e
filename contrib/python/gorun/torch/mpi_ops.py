"""Collectives for PyTorch tensors.

Functions without a trailing underscore return new tensors, and the synchronous ones are differentiable. Those
with an underscore overwrite their argument. Asynchronous functions return a handle for synchronize(). Ranks
match operations by name, and operations without a name by their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch

from gorun import collectives
from gorun.basics import HorovodBasics, init, rank
from gorun.collectives import *  # noqa: F403
from gorun.collectives import Average, Sum, choose_op
from gorun.collectives import __all__ as _collectives
from gorun.common import *  # noqa: F403
from gorun.common import __all__ as _common
from gorun.features import (
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)
from gorun.operations import Operations
from gorun.process_sets import ProcessSet, global_process_set
from gorun.torch import gpu, sparse
from gorun.torch.compression import Compression
from gorun.torch.memory import Torch

__all__ = [
    "Compression", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async",
    "allreduce_async_", "alltoall", "alltoall_async", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "check_installed_version", "gather", "gather_async",
    "get_average_backwards_compatibility_fun", "gpu_available", "grouped_allgather",
    "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async",
    "handle_average_backwards_compatibility", "init", "join", "num_rank_is_power_2", "poll", "recv",
    "recv_async", "reduce", "reduce_async", "reducescatter", "reducescatter_async", "scatter",
    "scatter_async", "send", "send_async", "sparse_allreduce_async", "synchronize",
]  # fmt: skip
__all__ += _collectives
__all__ += _common

_torch = Torch()
gpu.install()


class _Operations(Operations[torch.Tensor]):
    """The operations on tensors, without gradient."""

    def split_sizes(self, splits: Any) -> tuple[list[int] | None, str]:
        if not isinstance(splits, torch.Tensor):
            return super().split_sizes(splits)
        if splits.dtype != torch.int32:
            return None, "alltoall expects splits to contain 32-bit integer elements."
        if splits.dim() != 1:
            return None, "alltoall expects splits to be a 1D tensor."
        return splits.tolist(), ""

    def received(self, rows: torch.Tensor, counts: Sequence[int], splits: Any) -> Any:
        return rows, torch.tensor(counts, dtype=torch.int32)  # a pair without splits, too


_operations = _Operations(_torch)

poll = _operations.poll
synchronize = _operations.synchronize
allreduce_ = _operations.allreduce_
allreduce_async = _operations.allreduce_async
allreduce_async_ = _operations.allreduce_async_
grouped_allreduce_ = _operations.grouped_allreduce_
grouped_allreduce_async = _operations.grouped_allreduce_async
grouped_allreduce_async_ = _operations.grouped_allreduce_async_
allgather_async = _operations.allgather_async
grouped_allgather_async = _operations.grouped_allgather_async
broadcast_ = _operations.broadcast_
broadcast_async = _operations.broadcast_async
broadcast_async_ = _operations.broadcast_async_
alltoall_async = _operations.alltoall_async
reducescatter_async = _operations.reducescatter_async
grouped_reducescatter_async = _operations.grouped_reducescatter_async
reduce = _operations.reduce
reduce_async = _operations.reduce_async
gather = _operations.gather
gather_async = _operations.gather_async
scatter = _operations.scatter
scatter_async = _operations.scatter_async
send = _operations.send
send_async = _operations.send_async
recv = _operations.recv
recv_async = _operations.recv_async


_basics = HorovodBasics()  # programs look up the functions above in it
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(collectives)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, options: dict[str, Any]) -> torch.Tensor:
        ctx.options = options
        return collectives.allreduce_now(_torch, tensor, name=name, **options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _Allreduce.apply(grad, None, ctx.options), None, None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over all ranks and return the average (or op); a sparse one stays sparse.

    All ranks pass the same type and shape. Sparse tensors can only be averaged or added up.
    """
    op = choose_op(average, op)
    if tensor.is_sparse:
        return sparse_allreduce_async(tensor, name, op, process_set)()
    options = {
        "op": op, "prescale": prescale_factor, "postscale": postscale_factor, "process_set": process_set,
    }  # fmt: skip
    compressed, ctx = compression.compress(tensor)
    if compressed.requires_grad:
        output = _Allreduce.apply(compressed, name, options)
    else:  # autograd would take longer than the rest
        output = collectives.allreduce_now(_torch, compressed, name=name, **options)
    return compression.decompress(output, ctx)


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, options: dict[str, Any], *tensors: torch.Tensor) -> Any:
        ctx.options = options
        return tuple(collectives.grouped_allreduce_now(_torch, tensors, None, name=name, **options))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return (None, None, *_GroupedAllreduce.apply(None, ctx.options, *grads))


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce each tensor over all ranks; return the averages (or op) in order. All succeed or all fail."""
    options = {
        "op": choose_op(average, op), "prescale": prescale_factor, "postscale": postscale_factor,
        "process_set": process_set,
    }  # fmt: skip
    tensors = list(tensors)  # or the rows of one
    if not tensors:
        return []
    compressed, contexts = zip(*map(compression.compress, tensors))
    if any(tensor.requires_grad for tensor in compressed):
        outputs = _GroupedAllreduce.apply(name, options, *compressed)
    else:  # autograd would take as long as the rest
        outputs = collectives.grouped_allreduce_now(_torch, compressed, None, name=name, **options)
    return [compression.decompress(output, ctx) for output, ctx in zip(outputs, contexts)]


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start to add up (or average) sparse tensors. Return a function that waits for the result."""
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be added up or averaged only")
    divisor = process_set.size() if op == Average else 1
    parts = grouped_allgather_async(
        sparse.rows(tensor), None if name is None else f"sparse.{name}", process_set
    )
    shape = tensor.shape
    return lambda: sparse.total(*synchronize(parts), shape, divisor)


def _allgather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, then: Callable[[Any], Any]
) -> int:
    return collectives.allgather(_torch, list(tensors), name=name, process_set=process_set, then=then)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        gathered = synchronize(_allgather(tensors, name, process_set, list))
        ctx.process_set = process_set
        ctx.mine = [(sum(rows[: process_set.rank()]), rows[process_set.rank()]) for _, rows in gathered]
        return tuple(output for output, _ in gathered)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        reduced = grouped_allreduce(grads, op=Average, process_set=ctx.process_set)
        return (None, None, *(grad.narrow(0, *mine) for grad, mine in zip(reduced, ctx.mine)))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Join the tensors of all ranks along the first dimension; only that dimension may differ."""
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> tuple[torch.Tensor, ...]:
    """Return allgather() of each tensor."""
    tensors = list(tensors)
    return _Allgather.apply(name, process_set, *tensors) if tensors else ()


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        reduced = allreduce(grad, op=Average, process_set=ctx.process_set)
        return reduced if rank() == ctx.root_rank else reduced * 0, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the root's tensor. root_rank is a rank of the whole world, also in a process set."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> Any:
        output, received_splits = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.rows = received_splits.tolist()
        ctx.sent = tensor.shape
        ctx.process_set = process_set
        ctx.mark_non_differentiable(received_splits)
        return output, received_splits

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
        returned, _ = alltoall(grad, ctx.rows, process_set=ctx.process_set)
        if returned.shape[0] < ctx.sent[0]:  # rows that no split covered were not sent
            missing = ctx.sent[0] - returned.shape[0]
            returned = torch.cat([returned, returned.new_zeros(missing, *ctx.sent[1:])])
        return returned, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send splits[i] rows of a tensor to rank i, and return the rows that the ranks sent to this one.

    Without splits every rank gets the same number of rows. With splits the result is a pair: the rows, in
    rank order, and how many came from each rank.
    """
    output, received_splits = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received_splits)


def join(device: int = -1) -> int:
    """Declare that this rank has no more data. Wait until all ranks have joined; return the last one.

    Until then this rank contributes zeros to the allreduces of the others, and averages still divide by the
    number of all ranks. device has no effect: the zeros lie in host memory.
    """
    return collectives.join()


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, options: dict[str, Any], *tensors: torch.Tensor) -> Any:
        ctx.options = options
        return synchronize(grouped_reducescatter_async(tensors, name=name, **options))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        options = ctx.options
        factor = options["prescale_factor"] * options["postscale_factor"]
        if options["op"] == Sum:
            factor *= options["process_set"].size()
        gathered = grouped_allgather([grad * factor for grad in grads], process_set=options["process_set"])
        return (None, None, *gathered)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce a tensor over all ranks, and return this rank's rows of the average (or sum).

    Ranks get equal shares of the rows, in rank order. If the rows do not divide evenly, each of the first
    ranks gets one more.
    """
    return grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Return reducescatter() of each tensor."""
    options = {
        "op": op, "process_set": process_set, "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
    }  # fmt: skip
    tensors = list(tensors)
    if not tensors:
        return []
    compressed, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    outputs = _Reducescatter.apply(name, options, *compressed)
    return [compression.decompress(output, ctx) for output, ctx in zip(outputs, contexts)]


