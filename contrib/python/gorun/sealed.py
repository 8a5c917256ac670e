"""Pickles in the output of ranks, which count only with a code by the key of their job.

Ranks print more than what they are asked for, and their output may lie in files that others read. So a mark
that is printed proves nothing. The key is never printed: ranks get it over the encrypted channel of the job.
"""

from __future__ import annotations

import base64
import hmac
import pickle
from collections.abc import Iterator
from typing import Any, TextIO

_SIZE = 32
LINE = 4096  # of a pickle; longer lines may be cut on their way


def mark(key: str) -> str:
    """Return what lines with a pickle contain. It tells nothing of the key."""
    return hmac.digest(key.encode(), b"mark", "sha256").hex()[:32]


def seal(key: str, source: str, data: bytes) -> bytes:
    """Return a pickle with the code that proves who has made it, and for which process it stands."""
    return _code(key, source, data) + data


def unseal(key: str, source: str, found: bytes) -> Any:
    """Return the object in a sealed pickle of a process; RuntimeError if it is not one."""
    if not hmac.compare_digest(found[:_SIZE], _code(key, source, found[_SIZE:])):
        raise RuntimeError(f"what was printed as the result of {source} is not what that process sent")
    return pickle.loads(found[_SIZE:])


def _code(key: str, source: str, data: bytes) -> bytes:
    return hmac.digest(key.encode(), source.encode() + b"\0" + data, "sha256")


def lines(key: str, source: str, data: bytes) -> Iterator[str]:
    """Yield the lines by which a process, whose name has no blanks, prints a pickle."""
    text = base64.b64encode(seal(key, source, data)).decode()
    for start in range(0, len(text), LINE):
        last = int(start + LINE >= len(text))
        yield f"{mark(key)} {source} {last} {text[start : start + LINE]}\n"


class Reader:
    """Finds pickles in output, and passes the rest of it on."""

    def __init__(self, key: str, output: TextIO) -> None:
        self.found: dict[str, Any] = {}  # by process
        self.broken: Exception | None = None  # the first failure to take a line
        self._key, self._mark, self._output = key, mark(key), output
        self._parts: dict[str, list[str]] = {}

    def take(self, line: str) -> None:
        """Take a line. After a failure the output is read on."""
        try:
            self._take(line)
        except Exception as error:
            self.broken = self.broken or error

    def _take(self, line: str) -> None:
        _, found, after = line.partition(self._mark + " ")
        if not found:
            self._output.write(line)
            return
        if len(after.split()) != 3:  # somebody prints the mark
            return
        source, last, data = after.split()
        self._parts.setdefault(source, []).append(data)
        if last == "1":
            data = "".join(self._parts.pop(source))
            self.found[source] = unseal(self._key, source, base64.b64decode(data))
