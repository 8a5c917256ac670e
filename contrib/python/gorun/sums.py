"""The arithmetic of lanes, over NumPy's arrays: the bits that the engine would compute, on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# Overflow and NaN are results like any other, as the engine has it, whatever the user wants errors for.
# NumPy 1 has a way to say so that costs less than its errstate.
_OLD = int(np.__version__.partition(".")[0]) < 2
_QUIETLY: dict[str, Any] = {"extobj": [np.getbufsize(), 0, None]} if _OLD else {}


def arrays_over(memories: Sequence[memoryview], dtype: str, shape: Sequence[int]) -> list[np.ndarray]:
    """Return arrays that are that memory."""
    return [np.frombuffer(memory, dtype).reshape(shape) for memory in memories]


def add(arrays: Sequence[np.ndarray], by: float, out: Any = None) -> np.ndarray:
    """Add arrays up from left to right and multiply the sum by by, into out or a new array."""
    if _OLD:
        return _add(arrays, by, out)
    with np.errstate(all="ignore"):
        return _add(arrays, by, out)


def _add(arrays: Sequence[np.ndarray], by: float, out: Any) -> np.ndarray:
    if out is None:
        out = np.empty_like(arrays[0])
    np.add(arrays[0], arrays[1], out=out, **_QUIETLY)
    for array in arrays[2:]:
        np.add(out, array, out=out, **_QUIETLY)
    if by != 1.0:
        np.multiply(out, out.dtype.type(by), out=out, **_QUIETLY)
    if out.dtype.kind == "f":
        wrong = np.isnan(out)
        if wrong.any():  # they may differ in their other bits
            out[wrong] = np.nan
    return out
