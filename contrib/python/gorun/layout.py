"""Which tensors travel as one, and how they share a block: one after the other, by their shapes."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Offsets and counts in elements, used of them in all, and a signature of what was packed, 31 bits.

    Ranks that packed different tensors must be refused: tensors in another order but of the same total would
    be added up to nonsense.
    """

    offsets: tuple[int, ...]
    counts: tuple[int, ...]
    used: int
    signature: int = 0


def pack(shapes: Sequence[Sequence[int]], align: int = 1, detail: object = None) -> Layout:
    """Lay tensors out in order. detail is anything else that must be equal on all ranks."""
    return _pack(tuple(map(tuple, shapes)), align, repr(detail))


@functools.lru_cache(maxsize=32)  # every step of a training packs the same tensors
def _pack(shapes: tuple[tuple[int, ...], ...], align: int, detail: str) -> Layout:
    counts = tuple(map(math.prod, shapes))
    offsets = []
    used = 0
    for count in counts:
        offsets.append(used)
        used += -(-count // align) * align
    checksum = zlib.crc32(f"{shapes} {detail}".encode())
    return Layout(tuple(offsets), counts, used, checksum & 0x7FFFFFFF)


def dealt(sizes: Iterable[int], capacity: int) -> list[list[int]]:
    """Deal items to buckets of so many bytes, in order; return their indexes. A larger one goes alone."""
    buckets: list[list[int]] = []
    room = 0
    for i, size in enumerate(sizes):
        if size > room or not buckets:
            buckets.append([])
            room = capacity
        buckets[-1].append(i)
        room -= size
    return buckets
