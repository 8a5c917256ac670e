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

    def plain(self, tensor: np.ndarray) -> np.ndarray:
        if tensor.flags.c_contiguous and tensor.dtype.isnative:
            return tensor
        return np.array(tensor, tensor.dtype.newbyteorder("="), order="C")

    def address(self, tensor: np.ndarray) -> int:
        return tensor.__array_interface__["data"][0]  # type: ignore[no-any-return]

    def place(self, tensor: np.ndarray) -> Any:
        flags = tensor.flags
        if not (flags.c_contiguous and flags.writeable and tensor.dtype.isnative):
            return None
        return tensor.dtype, tensor.shape, self.address(tensor)

    def takes(self, tensor: np.ndarray, dtype: str, shape: Sequence[int]) -> bool:
        flags = tensor.flags
        plain = flags.c_contiguous and flags.writeable and tensor.dtype.isnative
        return bool(plain) and tensor.shape == tuple(shape) and tensor.dtype.name == dtype

    def empty(self, shape: Sequence[int], like: np.ndarray) -> np.ndarray:
        return np.empty(shape, like.dtype.newbyteorder("="))

    def finished(self, tensor: np.ndarray, like: np.ndarray) -> np.ndarray:
        return tensor

    def overwrite(self, target: np.ndarray, tensor: np.ndarray) -> None:
        target[...] = tensor

    def load(self, memory: memoryview, shape: Sequence[int], like: np.ndarray) -> np.ndarray:
        return np.frombuffer(memory, like.dtype.newbyteorder("=")).reshape(shape).copy()


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
