"""Collectives for NumPy arrays, in Horovod's manner: import gorun.numpy as hvd.

Anything numpy.asarray() takes may be given. Functions with a trailing underscore overwrite their argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gorun import __version__, collectives
from gorun.basics import (
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
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from gorun.objects import allgather_object, broadcast_object
from gorun.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Adasum", "Average", "BitAnd", "BitOr", "BitXor", "HorovodInternalError", "HostsUpdatedInterrupt",
    "LogicalAnd", "LogicalOr", "LogicalXor", "Max", "Min", "ProcessSet", "Product", "Sum", "__version__",
    "add_process_set", "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast",
    "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object", "ccl_built", "cross_rank",
    "cross_size", "cuda_built", "ddl_built", "gather", "gather_async", "global_process_set", "gloo_built",
    "gloo_enabled", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "init", "is_homogeneous", "is_initialized", "join", "local_rank",
    "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "poll", "rank", "recv",
    "recv_async", "reduce", "reduce_async", "reducescatter", "reducescatter_async", "remove_process_set",
    "rocm_built", "scatter", "scatter_async", "send", "send_async", "shutdown", "size", "start_timeline",
    "stop_timeline", "synchronize",
]  # fmt: skip


class _Numpy:
    """collectives.Binding for arrays."""

    def describe(self, tensor: np.ndarray) -> tuple[str, tuple[int, ...]]:
        return tensor.dtype.name, tensor.shape

    def store(self, tensor: np.ndarray, memory: memoryview) -> None:
        np.frombuffer(memory, tensor.dtype.newbyteorder("=")).reshape(tensor.shape)[...] = tensor

    def load(self, memory: memoryview, shape: Sequence[int], like: np.ndarray) -> np.ndarray:
        return np.frombuffer(memory, like.dtype.newbyteorder("=")).reshape(shape).copy()

    def load_into(self, memory: memoryview, tensor: np.ndarray) -> None:
        tensor[...] = np.frombuffer(memory, tensor.dtype.newbyteorder("=")).reshape(tensor.shape)

    def gather(self, tensors: Sequence[np.ndarray], memory: memoryview) -> None:
        flat = np.frombuffer(memory, tensors[0].dtype.newbyteorder("="))
        np.concatenate([tensor.ravel() for tensor in tensors], out=flat)

    def scatter(
        self, memory: memoryview, itemsize: int, counts: Sequence[int], tensors: Sequence[np.ndarray]
    ) -> None:
        flat = np.frombuffer(memory, tensors[0].dtype.newbyteorder("="))
        at = 0
        for tensor, count in zip(tensors, counts):
            tensor[...] = flat[at : at + count].reshape(tensor.shape)
            at += count

    def empty(self, shape: Sequence[int], like: np.ndarray) -> np.ndarray:
        return np.empty(shape, like.dtype.newbyteorder("="))

    adds = True

    def cell(self, memory: memoryview, like: np.ndarray) -> _Cell:
        return _Cell(memory, like)


class _Cell:
    """collectives.Cell for arrays."""

    def __init__(self, memory: memoryview, like: np.ndarray) -> None:
        self._dtype, self._shape = like.dtype, like.shape
        self._array = np.frombuffer(memory, like.dtype.newbyteorder("=")).reshape(like.shape)

    def fits(self, tensor: np.ndarray) -> bool:
        return tensor.shape == self._shape and tensor.dtype == self._dtype

    def put(self, tensor: np.ndarray) -> None:
        self._array[...] = tensor

    def get(self, like: np.ndarray, target: np.ndarray | None) -> np.ndarray:
        if target is None:
            return self._array.copy()
        target[...] = self._array
        return target


_numpy = _Numpy()


def poll(handle: int) -> bool:
    """Report whether synchronize(handle) would return at once."""
    return world().poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for an asynchronous operation and return its result."""
    return world().synchronize(handle)


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start allreduce(); synchronize() returns its result."""
    return collectives.allreduce_soon(
        _numpy, np.asarray(tensor), None, name=name, op=choose_op(average, op), prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def allreduce_async_(
    tensor: np.ndarray,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start allreduce_(); synchronize() returns its result."""
    return collectives.allreduce_soon(
        _numpy, tensor, tensor, name=name, op=choose_op(average, op), prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def allreduce(tensor: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Return the average (or op) of all ranks' arrays. Arguments as in allreduce_async()."""
    array = np.asarray(tensor)
    return _allreduce_now(array, None, *args, **kwargs)


def allreduce_(tensor: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
    """Overwrite an array with the average (or op) of all ranks'. Arguments as in allreduce_async()."""
    return _allreduce_now(tensor, tensor, *args, **kwargs)


def _allreduce_now(
    tensor: np.ndarray,
    target: np.ndarray | None,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    return collectives.allreduce_now(
        _numpy, tensor, target, name=name, op=choose_op(average, op), prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start grouped_allreduce(); synchronize() returns its result."""
    return collectives.allreduce(
        _numpy, [np.asarray(tensor) for tensor in tensors], kind="grouped_allreduce", name=name,
        op=choose_op(average, op), prescale=prescale_factor, postscale=postscale_factor,
        process_set=process_set,
    )  # fmt: skip


def grouped_allreduce_async_(
    tensors: Sequence[np.ndarray],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start grouped_allreduce_(); synchronize() returns its result."""
    return collectives.allreduce(
        _numpy, tensors, tensors, kind="grouped_allreduce", name=name, op=choose_op(average, op),
        prescale=prescale_factor, postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def grouped_allreduce(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> list[np.ndarray]:
    """Return the average (or op) of each array, all reduced together."""
    return synchronize(grouped_allreduce_async(tensors, *args, **kwargs))


def grouped_allreduce_(tensors: Sequence[np.ndarray], *args: Any, **kwargs: Any) -> list[np.ndarray]:
    """Overwrite each array with its average (or op), all reduced together."""
    return synchronize(grouped_allreduce_async_(tensors, *args, **kwargs))


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start allgather(); synchronize() returns its result."""
    return collectives.allgather(
        _numpy, [np.asarray(tensor)], name=name, process_set=process_set, then=lambda values: values[0][0]
    )


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Return all ranks' arrays joined along the first dimension, in which they may differ."""
    return synchronize(allgather_async(tensor, name, process_set))


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start grouped_allgather(); synchronize() returns its result."""
    return collectives.allgather(
        _numpy, [np.asarray(tensor) for tensor in tensors], name=name, process_set=process_set,
        then=lambda values: [value for value, _ in values],
    )  # fmt: skip


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[np.ndarray]:
    """Return allgather() of each array."""
    return synchronize(grouped_allgather_async(tensors, name, process_set))


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start broadcast(); synchronize() returns its result."""
    return collectives.broadcast(
        _numpy, [np.asarray(tensor)], None, root_rank, name=name, process_set=process_set, then=first
    )


def broadcast_async_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start broadcast_(); synchronize() returns its result."""
    tensors = [tensor]
    return collectives.broadcast(
        _numpy, tensors, tensors, root_rank, name=name, process_set=process_set, then=first
    )


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Return the root's array."""
    return synchronize(broadcast_async(tensor, root_rank, name, process_set))


def broadcast_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Overwrite an array with the root's."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def alltoall_async(
    tensor: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start alltoall(); synchronize() returns its result."""
    given = None if splits is None else [int(split) for split in splits]
    return collectives.alltoall(
        _numpy, np.asarray(tensor), given, name=name, process_set=process_set,
        then=lambda value: value[0] if splits is None else (value[0], np.array(value[1], np.int32)),
    )  # fmt: skip


def alltoall(
    tensor: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send splits[i] rows to rank i and return the rows received; with splits also how many from each."""
    return synchronize(alltoall_async(tensor, splits, name, process_set))


def join() -> int:
    """Say that this rank has no more data, and return the last rank to do so when all have.

    Meanwhile the allreduces of the others go on with zeros for this one.
    """
    return collectives.join()


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start reducescatter(); synchronize() returns its result."""
    return collectives.reducescatter(
        _numpy, [np.asarray(tensor)], name=name, op=op, prescale=prescale_factor, postscale=postscale_factor,
        process_set=process_set, then=first,
    )  # fmt: skip


def reducescatter(tensor: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Return this rank's rows of the average (or sum). Arguments as in reducescatter_async()."""
    return synchronize(reducescatter_async(tensor, *args, **kwargs))


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start grouped_reducescatter(); synchronize() returns its result."""
    return collectives.reducescatter(
        _numpy, [np.asarray(tensor) for tensor in tensors], name=name, op=op, prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def grouped_reducescatter(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> list[np.ndarray]:
    """Return reducescatter() of each array. Arguments as in grouped_reducescatter_async()."""
    return synchronize(grouped_reducescatter_async(tensors, *args, **kwargs))


def reduce_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start reduce(); synchronize() returns its result."""
    return collectives.reduce(
        _numpy, np.asarray(tensor), root_rank, name=name, op=op, prescale=prescale_factor,
        postscale=postscale_factor, process_set=process_set,
    )  # fmt: skip


def reduce(tensor: Any, root_rank: int, *args: Any, **kwargs: Any) -> np.ndarray | None:
    """Return the average (or op) of all ranks' tensors on the root, None elsewhere.

    Arguments as in reduce_async().
    """
    return synchronize(reduce_async(tensor, root_rank, *args, **kwargs))


def gather_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start gather(); synchronize() returns its result."""
    return collectives.gather(_numpy, np.asarray(tensor), root_rank, name=name, process_set=process_set)


def gather(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray | None:
    """Return all ranks' tensors joined along the first dimension on the root, None elsewhere."""
    return synchronize(gather_async(tensor, root_rank, name, process_set))


def scatter_async(
    tensor: Any,
    root_rank: int,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start scatter(); synchronize() returns its result."""
    given = None if splits is None else [int(split) for split in splits]
    return collectives.scatter(
        _numpy, np.asarray(tensor), root_rank, given, name=name, process_set=process_set
    )


def scatter(
    tensor: Any,
    root_rank: int,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """Return this rank's rows of the root's tensor: splits[i] for rank i, as the root says, or all evenly.

    Of the other ranks' tensors only the type and the shape of a row count; they may have no rows.
    """
    return synchronize(scatter_async(tensor, root_rank, splits, name, process_set))


def send_async(tensor: Any, rank: int, name: str | None = None) -> int:
    """Start send(); synchronize() returns the tensor when the other rank has it."""
    return collectives.send(_numpy, np.asarray(tensor), rank, name=name)


def send(tensor: Any, rank: int, name: str | None = None) -> None:
    """Send a tensor to a rank, which calls recv() for it; return when it is there.

    What has no name arrives in the order in which it was sent.
    """
    synchronize(send_async(tensor, rank, name))


def recv_async(tensor: np.ndarray, rank: int, name: str | None = None) -> int:
    """Start recv(); synchronize() returns the tensor."""
    return collectives.recv(_numpy, tensor, rank, name=name)


def recv(tensor: np.ndarray, rank: int, name: str | None = None) -> np.ndarray:
    """Overwrite a tensor by one of the same type and shape that a rank sends, and return it."""
    return synchronize(recv_async(tensor, rank, name))
