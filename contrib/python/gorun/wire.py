"""How sums of floats travel between hosts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gorun.basics import world
from gorun.constants import CODINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

@contextmanager
def wire_compression(how: str) -> Iterator[None]:
    """Choose how sums and averages of float32 and float64 that are submitted inside travel between hosts.

    how is none, fp16, bf16, int8, or default for what `gorun --wire-compression` says. All ranks must say the
    same. Unlike a Compressor it costs no pass over the tensor, and ranks of one host lose nothing by it.
    """
    if how not in CODINGS:
        raise ValueError(f"wire_compression({how!r}): it is one of {', '.join(CODINGS)}")
    session = world().session
    before, session.wire = session.wire, CODINGS[how]
    try:
        yield
    finally:
        session.wire = before
