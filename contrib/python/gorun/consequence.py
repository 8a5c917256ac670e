"""What a rank shows when it fails because another one did, whose traceback has the cause."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType

from .errors import Aborted, GorunError, Shutdown

WAIT = 0.5
"""Seconds for the other rank to show its traceback, and for the job to end."""

_OWN = os.path.dirname(__file__) + os.sep


def show_last() -> None:
    """Have errors that nobody catches show the frames of the script alone, and those of other ranks last."""
    former = sys.excepthook
    if getattr(former, "waits", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _caused(error, GorunError):
            if _caused(error, (Aborted, Shutdown)):
                time.sleep(WAIT)
            if str(error.__cause__) == str(error):
                error.__cause__, error.__suppress_context__ = None, True
            trace = _without_own(trace)
            error = error.with_traceback(trace)
        former(kind, error, trace)

    hook.waits = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _caused(error: BaseException, by: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Report whether the error is of a kind, or one of its causes is."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, by):
        at = at.__cause__
    return at is not None


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package, or all of it if there are no others."""
    frames = []
    at = trace
    while at is not None:
        if not at.tb_frame.f_code.co_filename.startswith(_OWN):
            frames.append(at)
        at = at.tb_next
    shown: TracebackType | None = None
    for at in reversed(frames):
        shown = TracebackType(shown, at.tb_frame, at.tb_lasti, at.tb_lineno)
    return shown or trace
