"""Collectives for NumPy arrays, in Horovod's manner: import gorun.numpy as hvd.

Anything numpy.asarray() takes may be given. Functions with a trailing underscore overwrite their argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gorun import __version__
from gorun.basics import init
from gorun.collectives import *  # noqa: F403
from gorun.collectives import __all__ as _collectives
from gorun.common import *  # noqa: F403
from gorun.common import __all__ as _common
from gorun.objects import allgather_object, broadcast_object
from gorun.operations import Operations

__all__ = [
    "__version__", "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "broadcast_object", "gather", "gather_async", "grouped_allgather",
    "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "init", "join",
    "poll", "recv", "recv_async", "reduce", "reduce_async", "reducescatter", "reducescatter_async", "scatter",
    "scatter_async", "send", "send_async", "synchronize",
]  # fmt: skip
__all__ += _collectives
__all__ += _common


class _Numpy:
    """bindings.Binding for arrays."""

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

    def flat(self, tensor: np.ndarray) -> np.ndarray | None:
        if not tensor.flags.c_contiguous or not tensor.dtype.isnative or not tensor.size:
            return None
        return tensor.reshape(-1)

    def cell(self, memory: memoryview, like: np.ndarray) -> _Cell:
        return _Cell(memory, like)


class _Cell:
    """bindings.Cell for arrays."""

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


class _Operations(Operations[np.ndarray]):
    """The operations on arrays."""

    def convert(self, tensor: Any) -> np.ndarray:
        return np.asarray(tensor)

    def several(self, results: Iterable[np.ndarray]) -> list[np.ndarray]:
        return list(results)

    def received(self, rows: np.ndarray, counts: Sequence[int], splits: Any) -> Any:
        return rows if splits is None else (rows, np.array(counts, np.int32))


_operations = _Operations(_Numpy())

poll = _operations.poll
synchronize = _operations.synchronize
allreduce = _operations.allreduce
allreduce_ = _operations.allreduce_
allreduce_async = _operations.allreduce_async
allreduce_async_ = _operations.allreduce_async_
grouped_allreduce = _operations.grouped_allreduce
grouped_allreduce_ = _operations.grouped_allreduce_
grouped_allreduce_async = _operations.grouped_allreduce_async
grouped_allreduce_async_ = _operations.grouped_allreduce_async_
allgather = _operations.allgather
allgather_async = _operations.allgather_async
grouped_allgather = _operations.grouped_allgather
grouped_allgather_async = _operations.grouped_allgather_async
broadcast = _operations.broadcast
broadcast_ = _operations.broadcast_
broadcast_async = _operations.broadcast_async
broadcast_async_ = _operations.broadcast_async_
alltoall = _operations.alltoall
alltoall_async = _operations.alltoall_async
join = _operations.join
reducescatter = _operations.reducescatter
reducescatter_async = _operations.reducescatter_async
grouped_reducescatter = _operations.grouped_reducescatter
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
