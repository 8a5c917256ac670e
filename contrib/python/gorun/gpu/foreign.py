"""Functions of a shared library, by a table of their signatures."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Callable

Signatures = Mapping[str, Sequence[Any]]


class Failed(RuntimeError):
    """A call of a library failed. code is the library's."""

    def __init__(self, name: str, code: int, text: str) -> None:
        super().__init__(f"{name}: {text} ({code})")
        self.code = code


def load(names: Sequence[str]) -> ctypes.CDLL:
    """Open the first library of several that can be opened; OSError if there is none."""
    for name in names[:-1]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return ctypes.CDLL(names[-1])


def bind(
    library: ctypes.CDLL, signatures: Signatures, explain: Callable[[int], str], fine: Sequence[int] = (0,)
) -> dict[str, Callable[..., int]]:
    """Return functions that raise Failed where the library's return anything but what is fine.

    Every function of a library returns an int. OSError if it lacks one.
    """

    def one(name: str, arguments: Sequence[Any]) -> Callable[..., int]:
        try:
            function = library[name]
        except AttributeError:
            raise OSError(f"{library._name} has no {name}") from None
        function.argtypes, function.restype = list(arguments), ctypes.c_int

        def call(*given: Any) -> int:
            code: int = function(*given)
            if code not in fine:
                raise Failed(name, code, explain(code))
            return code

        return call

    return {name: one(name, arguments) for name, arguments in signatures.items()}
