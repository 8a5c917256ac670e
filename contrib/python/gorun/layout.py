"""How several tensors share a block: one after the other, and told apart by their shapes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

_SIGNATURES = 127


@dataclass(frozen=True)
class Layout:
    """Offsets and counts in elements. The tail, less than 127 elements, depends on what was packed.

    Ranks that packed different tensors thus submit different sizes, and the engine refuses that by name;
    without it, tensors in another order but of the same total would be added up to nonsense.
    """

    offsets: tuple[int, ...]
    counts: tuple[int, ...]
    used: int
    total: int


def pack(shapes: Sequence[Sequence[int]], align: int = 1, detail: object = None) -> Layout:
    """Lay tensors out in order. detail is whatever else must be alike on all ranks."""
    counts = tuple(math.prod(shape) for shape in shapes)
    offsets = []
    used = 0
    for count in counts:
        offsets.append(used)
        used += -(-count // align) * align
    signature = zlib.crc32(repr(([tuple(shape) for shape in shapes], detail)).encode()) % _SIGNATURES
    return Layout(tuple(offsets), counts, used, used + signature)


def alone(count: int) -> Layout:
    """Lay out one tensor; it needs no tail, as its shape goes with it."""
    return Layout((0,), (count,), count, count)
