"""Collectives for PyTorch tensors.

Functions without a trailing underscore return new tensors and, unless asynchronous, are differentiable;
those with one overwrite their argument. Asynchronous functions return a handle for synchronize(). Ranks
meet by the name of an operation, or by their count of operations without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch

from gorun import collectives
from gorun.basics import (
    HorovodBasics,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
    world,
)
from gorun.collectives import (
    Adasum,
    Average,
    BitAnd,
    BitOr,
    BitXor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Max,
    Min,
    Product,
    Sum,
    barrier,
    choose_op,
    first,
)
from gorun.exceptions import HorovodInternalError
from gorun.features import (
    check_installed_version,
    get_average_backwards_compatibility_fun,
    gpu_available,
    num_rank_is_power_2,
)
from gorun.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from gorun.torch import sparse
from gorun.torch.compression import Compression
from gorun.torch.memory import Torch

__all__ = [
    "Adasum", "Average", "BitAnd", "BitOr", "BitXor", "Compression", "HorovodInternalError", "LogicalAnd",
    "LogicalOr", "LogicalXor", "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set",
    "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "ccl_built", "check_installed_version", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "gather", "gather_async", "get_average_backwards_compatibility_fun",
    "global_process_set", "gloo_built", "gloo_enabled", "gpu_available", "grouped_allgather",
    "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async",
    "handle_average_backwards_compatibility", "init", "is_homogeneous", "is_initialized", "join",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built",
    "num_rank_is_power_2", "poll", "rank", "recv", "recv_async", "reduce", "reduce_async",
    "reducescatter", "reducescatter_async", "remove_process_set", "rocm_built", "scatter",
    "scatter_async", "send", "send_async", "shutdown", "size", "sparse_allreduce_async", "start_timeline",
    "stop_timeline", "synchronize",
]  # fmt: skip

_torch = Torch()

_basics = HorovodBasics()  # programs look up the functions above in it
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(collectives)


def poll(handle: int) -> bool:
    """Report whether synchronize(handle) would return at once."""
    return world().poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for an asynchronous operation and return its result. HorovodInternalError if it failed."""
    return world().synchronize(handle)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start allreduce(), without compression and gradient."""
    return collectives.allreduce_soon(
        _torch, tensor, None, name=name, op=choose_op(average, op), prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start allreduce_()."""
    return collectives.allreduce_soon(
        _torch, tensor, tensor, name=name, op=choose_op(average, op), prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrite a tensor with the average (or op) of all ranks' and return it."""
    return collectives.allreduce_now(
        _torch, tensor, tensor, name=name, op=choose_op(average, op), prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def _allreduce_now(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> torch.Tensor:
    return collectives.allreduce_now(
        _torch, tensor, None, name=name, op=op, prescale=prescale_factor, postscale=postscale_factor,
        process_set=process_set,
    )  # fmt: skip


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, options: dict[str, Any]) -> torch.Tensor:
        ctx.options = options
        return _allreduce_now(tensor, name, **options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return allreduce(grad, **ctx.options), None, None


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
    """Return the average (or op) of all ranks' tensors; a sparse tensor gives a sparse one."""
    op = choose_op(average, op)
    if tensor.is_sparse:
        return sparse_allreduce_async(tensor, name, op, process_set)()
    compressed, ctx = compression.compress(tensor)
    if not compressed.requires_grad:  # autograd would take longer than the rest
        return compression.decompress(
            _allreduce_now(compressed, name, op, prescale_factor, postscale_factor, process_set), ctx
        )
    options = {
        "op": op, "prescale_factor": prescale_factor, "postscale_factor": postscale_factor,
        "process_set": process_set,
    }  # fmt: skip
    return compression.decompress(_Allreduce.apply(compressed, name, options), ctx)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start grouped_allreduce(), without compression and gradient."""
    return collectives.allreduce(
        _torch, list(tensors), kind="grouped_allreduce", name=name, op=choose_op(average, op),
        prescale=prescale_factor, postscale=postscale_factor, process_set=process_set, then=tuple,
    )  # fmt: skip


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start grouped_allreduce_()."""
    tensors = list(tensors)
    return collectives.allreduce(
        _torch, tensors, tensors, kind="grouped_allreduce", name=name, op=choose_op(average, op),
        prescale=prescale_factor, postscale=postscale_factor, process_set=process_set, then=tuple,
    )  # fmt: skip


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Overwrite each tensor with its average (or op); they are reduced together, or none of them is."""
    return synchronize(
        grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
    )


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, options: dict[str, Any], *tensors: torch.Tensor) -> Any:
        ctx.options = options
        return synchronize(grouped_allreduce_async(tensors, name=name, **options))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return (None, None, *grouped_allreduce(list(grads), **ctx.options))


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
    """Return each tensor's average (or op) over the ranks; they are reduced together, or none of them is."""
    options = {
        "op": choose_op(average, op), "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor, "process_set": process_set,
    }  # fmt: skip
    tensors = list(tensors)  # or the rows of one
    if not tensors:
        return []
    compressed, contexts = zip(*map(compression.compress, tensors))
    if any(tensor.requires_grad for tensor in compressed):
        outputs = _GroupedAllreduce.apply(name, options, *compressed)
    else:  # autograd would take as long as the rest
        outputs = synchronize(grouped_allreduce_async(compressed, name=name, **options))
    return [compression.decompress(output, ctx) for output, ctx in zip(outputs, contexts)]


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start to add up (or average) sparse tensors; the function returned waits and returns the result."""
    if op not in (Average, Sum):
        raise ValueError("sparse tensors can be added up or averaged only")
    divisor = process_set.size() if op == Average else 1
    parts = grouped_allgather_async(
        sparse.rows(tensor), None if name is None else f"sparse.{name}", process_set
    )
    shape = tensor.shape
    return lambda: sparse.total(*synchronize(parts), shape, divisor)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start allgather(), without gradient."""
    return _allgather([tensor], name, process_set, lambda gathered: gathered[0][0])


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start grouped_allgather(), without gradient."""
    return _allgather(tensors, name, process_set, lambda gathered: tuple(output for output, _ in gathered))


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
    """Return all ranks' tensors joined along the first dimension, in which they may differ."""
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> tuple[torch.Tensor, ...]:
    """Return allgather() of each tensor."""
    tensors = list(tensors)
    return _Allgather.apply(name, process_set, *tensors) if tensors else ()


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start broadcast(), without gradient."""
    return collectives.broadcast(
        _torch, [tensor], None, root_rank, name=name, process_set=process_set, then=first
    )


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start broadcast_()."""
    tensors = [tensor]
    return collectives.broadcast(
        _torch, tensors, tensors, root_rank, name=name, process_set=process_set, then=first
    )


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrite a tensor with the root's and return it. root_rank is global in a process set too."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


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
    """Return the root's tensor. root_rank is global in a process set too."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def _split_sizes(splits: Any) -> tuple[list[int] | None, str]:
    """Return splits, or what is wrong with them."""
    if splits is None:
        return None, ""
    if not isinstance(splits, torch.Tensor):
        return [int(split) for split in splits], ""
    if splits.dtype != torch.int32:
        return None, "alltoall expects splits to contain 32-bit integer elements."
    if splits.dim() != 1:
        return None, "alltoall expects splits to be a 1D tensor."
    return splits.tolist(), ""


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start alltoall(), without gradient; synchronize() returns the pair, without splits too."""

    def then(received: tuple[torch.Tensor, Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return received[0], torch.tensor(received[1], dtype=torch.int32)

    given, wrong = _split_sizes(splits)
    return collectives.alltoall(
        _torch, tensor, given, wrong=wrong, name=name, process_set=process_set, then=then
    )


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
    """Send splits[i] rows to rank i, or as many to each, and return the rows received.

    With splits the result is a pair: those rows, and how many of them came from each rank.
    """
    output, received_splits = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received_splits)


def join(device: int = -1) -> int:
    """Say that this rank has no more data, and return the last rank to do so when all have.

    Meanwhile the allreduces of the others go on with zeros for this one; an average still divides
    by the number of all ranks. device is Horovod's: zeros lie in host memory.
    """
    return collectives.join()


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start reducescatter(), without compression and gradient."""
    return collectives.reducescatter(
        _torch, [tensor], name=name, op=op, prescale=prescale_factor, postscale=postscale_factor,
        process_set=process_set, then=first,
    )  # fmt: skip


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start grouped_reducescatter(), without compression and gradient."""
    return collectives.reducescatter(
        _torch, list(tensors), name=name, op=op, prescale=prescale_factor, postscale=postscale_factor,
        process_set=process_set, then=tuple,
    )  # fmt: skip


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
    """Return this rank's rows of the average (or sum) of all ranks' tensors.

    The rows are dealt out in rank order; what does not divide evenly goes to the first ranks, one row each.
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


def reduce_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start reduce(); synchronize() returns its result."""
    return collectives.reduce(
        _torch, tensor, root_rank, name=name, op=op, prescale=prescale_factor, postscale=postscale_factor,
        process_set=process_set,
    )  # fmt: skip


def reduce(tensor: torch.Tensor, root_rank: int, *args: Any, **kwargs: Any) -> torch.Tensor | None:
    """Return the average (or op) of all ranks' tensors on the root, None elsewhere.

    Arguments as in reduce_async().
    """
    return synchronize(reduce_async(tensor, root_rank, *args, **kwargs))


def gather_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start gather(); synchronize() returns its result."""
    return collectives.gather(_torch, tensor, root_rank, name=name, process_set=process_set)


def gather(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | None:
    """Return all ranks' tensors joined along the first dimension on the root, None elsewhere."""
    return synchronize(gather_async(tensor, root_rank, name, process_set))


def scatter_async(
    tensor: torch.Tensor,
    root_rank: int,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start scatter(); synchronize() returns its result."""
    given = None if splits is None else [int(split) for split in splits]
    return collectives.scatter(_torch, tensor, root_rank, given, name=name, process_set=process_set)


def scatter(
    tensor: torch.Tensor,
    root_rank: int,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return this rank's rows of the root's tensor: splits[i] for rank i, as the root says, or all evenly.

    Of the other ranks' tensors only the type and the shape of a row count; they may have no rows.
    """
    return synchronize(scatter_async(tensor, root_rank, splits, name, process_set))


def send_async(tensor: torch.Tensor, rank: int, name: str | None = None) -> int:
    """Start send(); synchronize() returns the tensor when the other rank has it."""
    return collectives.send(_torch, tensor, rank, name=name)


def send(tensor: torch.Tensor, rank: int, name: str | None = None) -> None:
    """Send a tensor to a rank, which calls recv() for it; return when it is there.

    What has no name arrives in the order in which it was sent.
    """
    synchronize(send_async(tensor, rank, name))


def recv_async(tensor: torch.Tensor, rank: int, name: str | None = None) -> int:
    """Start recv(); synchronize() returns the tensor."""
    return collectives.recv(_torch, tensor, rank, name=name)


def recv(tensor: torch.Tensor, rank: int, name: str | None = None) -> torch.Tensor:
    """Overwrite a tensor by one of the same type and shape that a rank sends, and return it."""
    return synchronize(recv_async(tensor, rank, name))
