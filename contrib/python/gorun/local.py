"""A world of one, for scripts that run without gorun: every operation ends where it starts."""

from __future__ import annotations

import itertools
import math
import mmap
import os
import struct
import threading
from collections.abc import Sequence

from . import message
from .arena import GRANULE, Arena, Block, Region
from .constants import (
    ADD_GROUP,
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BFLOAT16,
    BROADCAST,
    COMPLEX64,
    COMPLEX128,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    GATHER,
    INT8,
    INT16,
    INT32,
    INT64,
    JOIN,
    PEEK,
    RECV,
    REDUCE,
    REDUCESCATTER,
    REMOVE_GROUP,
    SCATTER,
    SEND,
    SUM,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from .errors import InvalidArgument, Shutdown
from .session import Result, Session


def _shown() -> mmap.mmap | None:
    """Return memory by whose name a daemon sees that a rank, whose variables were taken away, is alone."""
    if not hasattr(os, "memfd_create"):
        return None
    fd = os.memfd_create("gorun-alone")
    try:
        os.ftruncate(fd, 1)
        return mmap.mmap(fd, 1)
    finally:
        os.close(fd)


class LocalSession(Session):
    """A session without a daemon."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1
        self.local_rank, self.local_size = 0, 1
        self.cross_rank, self.cross_size = 0, 1
        self.epoch = 1
        self._shown = _shown()
        self._lock = threading.Lock()
        self._handles = itertools.count(1)
        self._results: dict[int, Result] = {}
        self._polled: dict[int, bool] = {}
        self._closed = False
        numbers = itertools.count()
        self._arena = Arena(lambda nbytes: Region(next(numbers), _anonymous(nbytes)), Region.close)

    def alloc(self, nbytes: int) -> Block:
        return self._arena.alloc(nbytes)

    def submit(
        self,
        kind: int,
        name: str,
        dtype: int,
        shape: Sequence[int],
        src: Block | None,
        dst: Block | None,
        *,
        op: int = SUM,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        group: int = 0,
        splits: Sequence[int] | None = None,
        handle: int | None = None,
    ) -> int:
        if self._closed:
            raise Shutdown(f"submit {name}: the session is closed")
        nbytes = message.check(kind, name, dtype, shape, src, dst, splits)
        if kind in (SEND, RECV):
            raise InvalidArgument(f"submit {name}: in a world of size 1 there is no other rank")
        if kind in (ALLGATHER, ALLTOALL, REDUCESCATTER, GATHER, SCATTER) and not shape:
            raise InvalidArgument(f"submit {name}: a scalar has no rows: give it one")
        if kind in (BROADCAST, REDUCE, GATHER, SCATTER) and root != 0:
            raise InvalidArgument(f"submit {name}: root rank {root} is not in a world of size 1")
        if kind in (ADD_GROUP, REMOVE_GROUP):
            # The only group there can be is the world.
            raise InvalidArgument(f"submit {name}: no process sets besides the one of the only rank")
        if kind in (ALLREDUCE, REDUCE, REDUCESCATTER) and dtype > COMPLEX128:
            raise InvalidArgument(f"submit {name}: element type {dtype} cannot be reduced")
        source = memoryview(b"") if src is None else src.view[:nbytes]
        result = Result(tuple(shape))
        if kind in (ALLREDUCE, BROADCAST):
            if dst is not None:
                if src is not None and src is not dst:
                    dst.view[:nbytes] = source
                if kind == ALLREDUCE:
                    scale(dst.view[:nbytes], dtype, prescale * postscale)
        elif kind == REDUCE:
            reduced = bytearray(source)
            scale(memoryview(reduced), dtype, prescale * postscale)
            result = Result(tuple(shape), (), memoryview(reduced).toreadonly())
        elif kind == JOIN:
            result = Result(rows=(0,))
        elif kind not in (BARRIER, PEEK):
            rows = (shape[0],) if splits is None else tuple(splits)
            if len(rows) != 1 or not 0 <= rows[0] <= shape[0]:
                raise InvalidArgument(f"alltoall {name}: splits {rows} of {shape[0]} rows for 1 rank")
            data = bytearray(source[: nbytes // shape[0] * rows[0]] if rows[0] else b"")
            if kind == REDUCESCATTER:
                scale(memoryview(data), dtype, prescale * postscale)
            result = Result(rows + tuple(shape[1:]), rows, memoryview(data).toreadonly())
        if handle is None:
            handle = self.reserve()
        with self._lock:
            self._results[handle] = result
            self._polled[handle] = False
        return handle

    def reserve(self) -> int:
        return next(self._handles)

    def has(self, handle: int) -> bool:
        return handle in self._results

    def poll(self, handle: int) -> bool:
        """Report False once, so that callers see the case that they will see in a larger world."""
        with self._lock:
            if handle not in self._results:
                return True
            polled, self._polled[handle] = self._polled[handle], True
            return polled

    def wait(self, handle: int) -> Result:
        with self._lock:
            if handle not in self._results:
                raise InvalidArgument(f"wait for operation: unknown handle {handle}")
            del self._polled[handle]
            return self._results.pop(handle)

    def close(self) -> None:
        self._closed = True


def _anonymous(nbytes: int) -> mmap.mmap:
    return mmap.mmap(-1, (nbytes + GRANULE - 1) // GRANULE * GRANULE)


_INTEGERS = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    UINT64: "Q",
    INT64: "q",
}


def scale(view: memoryview, dtype: int, factor: float) -> None:
    """Multiply every element. Slow, and rarely needed: in a world of one a sum is an average."""
    if factor == 1.0:
        return
    if dtype in (FLOAT16, BFLOAT16):
        load, store = (_load_half, _store_half) if dtype == FLOAT16 else (_load_brain, _store_brain)
        halves = view.cast("H")
        for i, bits in enumerate(halves):
            halves[i] = store(load(bits) * factor)
    elif dtype in (FLOAT32, FLOAT64, COMPLEX64, COMPLEX128):
        single = dtype in (FLOAT32, COMPLEX64)
        floats = view.cast("f" if single else "d")
        limit = _FLOAT32_LIMIT if single else math.inf
        for i, value in enumerate(floats):
            product = value * factor
            floats[i] = math.copysign(math.inf, product) if abs(product) >= limit else product
    elif dtype in _INTEGERS:
        integers: memoryview = view.cast(_INTEGERS[dtype])  # type: ignore[call-overload]
        for i, value in enumerate(integers):
            integers[i] = int(value * factor)
    else:
        raise InvalidArgument(f"scale tensor: element type {dtype} cannot be scaled")


# From here on a number rounds to infinity: halfway between the largest one and the next power of two.
_FLOAT32_LIMIT = (2 - 2**-24) * 2.0**127
_FLOAT16_LIMIT = (2 - 2**-11) * 2.0**15


def _load_half(bits: int) -> float:
    return struct.unpack("<e", bits.to_bytes(2, "little"))[0]  # type: ignore[no-any-return]


def _store_half(value: float) -> int:
    if abs(value) >= _FLOAT16_LIMIT:
        value = math.copysign(math.inf, value)
    return int.from_bytes(struct.pack("<e", value), "little")


def _load_brain(bits: int) -> float:
    return struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0]  # type: ignore[no-any-return]


def _store_brain(value: float) -> int:
    """Round to the nearest, to even if halfway; a NaN stays one."""
    if math.isnan(value):
        return 0x7FC0
    if abs(value) >= _FLOAT32_LIMIT:
        value = math.copysign(math.inf, value)
    bits = int.from_bytes(struct.pack("<f", value), "little")
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
