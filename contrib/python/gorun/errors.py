"""Exceptions of the binding. Every one is a GorunError, so one ``except`` catches them all."""

from __future__ import annotations

from .constants import ABORTED, INVALID, MISMATCH, SHUTDOWN


class GorunError(RuntimeError):
    """An operation failed, or the session cannot be used."""


class InvalidArgument(GorunError, ValueError):
    """This rank's own arguments were refused."""


class Mismatch(GorunError):
    """The ranks submitted different signatures under one name."""


class Busy(GorunError):
    """An operation of this name is in flight."""


class Shutdown(GorunError):
    """A rank left before it submitted its contribution, or this session was closed."""


class Aborted(GorunError):
    """The world ended: a host died, or the daemon of this host is gone."""


LOST, MEMORY, BUSY = 6, 7, 8  # of the library

_BY_CODE: dict[int, type[GorunError]] = {
    INVALID: InvalidArgument,
    MISMATCH: Mismatch,
    SHUTDOWN: Shutdown,
    ABORTED: Aborted,
    LOST: Aborted,
    BUSY: Busy,
}


def error(code: int, text: str) -> GorunError:
    """Return the exception for a code of the rank protocol; an unknown code is a GorunError."""
    return _BY_CODE.get(code, GorunError)(text)


def code_of(error: BaseException | None) -> int:
    """Return the code of an exception that error() made, 0 for others."""
    return next((code for code, kind in _BY_CODE.items() if type(error) is kind), 0)
