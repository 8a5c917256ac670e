"""The arithmetic of slots, over NumPy's arrays: the bits that the engine would compute, on all ranks."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Overflow and NaN are results like any other, as the engine has it, whatever the user wants errors for.
# NumPy 1 has a way to say so that costs less than its errstate.
_OLD = int(np.__version__.partition(".")[0]) < 2
_QUIETLY: dict[str, Any] = {"extobj": [np.getbufsize(), 0, None]} if _OLD else {}

_FEW = 1024  # numbers, up to which the product with itself shows a NaN sooner than isnan() does


class Inputs:
    """What the ranks put into a slot, by half and rank, and room for its sum: flat arrays of one type."""

    def __init__(self, halves: Sequence[Sequence[memoryview]], dtype: str, by: float) -> None:
        self.arrays = [[np.frombuffer(memory, dtype) for memory in half] for half in halves]
        self.total = np.empty_like(self.arrays[0][0])
        self._by = self.total.dtype.type(by) if by != 1.0 else None
        self._floats = self.total.dtype.kind == "f"

    def add(self, half: int) -> np.ndarray:
        """Add a half up from left to right and multiply the sum by by, into total."""
        arrays, total = self.arrays[half], self.total
        np.add(arrays[0], arrays[1], total, **_QUIETLY)
        for array in arrays[2:]:
            np.add(total, array, total, **_QUIETLY)
        if self._by is not None:
            np.multiply(total, self._by, total, **_QUIETLY)
        if self._floats:
            if total.size <= _FEW:
                product = total.dot(total)  # no number makes it a NaN, infinity neither
                if product == product:
                    return total
            wrong = np.isnan(total)
            if wrong.any():  # they may differ in their other bits
                total[wrong] = np.nan
        return total

    if not _OLD:
        add = np.errstate(all="ignore")(add)


def overlap(arrays: Sequence[np.ndarray]) -> bool:
    """Report whether flat arrays share memory."""
    end = 0
    for at, nbytes in sorted((array.__array_interface__["data"][0], array.nbytes) for array in arrays):
        if nbytes and at < end:
            return True
        end = at + nbytes
    return False


class Load:
    """belt.Load for arrays that adjoin: sources and targets, which may be the same, flat and of one type."""

    def __init__(self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], by: float) -> None:
        self._sources, self._targets = sources, targets
        self._dtype = sources[0].dtype
        self._ends = list(itertools.accumulate(array.nbytes for array in sources))
        self._by = self._dtype.type(by) if by != 1.0 else None
        self.nbytes = self._ends[-1]

    def _pieces(self, at: int, nbytes: int) -> Iterator[tuple[int, slice, slice]]:
        """Yield the arrays that hold these bytes, by number: what of them, and where that is in the bytes."""
        size, start, end = self._dtype.itemsize, at, at + nbytes
        number = bisect.bisect_right(self._ends, at)
        while at < end:
            begin = self._ends[number] - self._sources[number].nbytes
            to = min(end, self._ends[number])
            if at < to:
                inside = slice((at - begin) // size, (to - begin) // size)
                yield number, inside, slice((at - start) // size, (to - start) // size)
            at, number = to, number + 1

    def put(self, at: int, memory: memoryview) -> None:
        """Copy the source from a position on to memory."""
        array = np.frombuffer(memory, self._dtype)
        for number, inside, place in self._pieces(at, len(memory)):
            array[place] = self._sources[number][inside]

    def get(self, at: int, memory: memoryview) -> None:
        """Copy memory to the target from a position on."""
        array = np.frombuffer(memory, self._dtype)
        for number, inside, place in self._pieces(at, len(memory)):
            self._targets[number][inside] = array[place]

    def reduce(self, at: int, inputs: Sequence[memoryview | None], memory: memoryview) -> None:
        """Add up the inputs into the target and memory. None among them means the source."""
        total = np.frombuffer(memory, self._dtype)
        arrays = [None if part is None else np.frombuffer(part, self._dtype) for part in inputs]
        for number, inside, place in self._pieces(at, len(memory)):
            own, result = self._sources[number][inside], total[place]
            parts = [own if array is None else array[place] for array in arrays]
            np.add(parts[0], parts[1], result, **_QUIETLY)
            for part in parts[2:]:
                np.add(result, part, result, **_QUIETLY)
            if self._by is not None:
                np.multiply(result, self._by, result, **_QUIETLY)
            if self._dtype.kind == "f":
                most = result.max()  # NaN if any is
                if most != most:
                    result[np.isnan(result)] = np.nan
            self._targets[number][inside] = result

    if not _OLD:
        reduce = np.errstate(all="ignore")(reduce)
