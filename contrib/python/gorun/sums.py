"""The arithmetic of slots, over NumPy's arrays: the bits that the engine would compute, on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
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
