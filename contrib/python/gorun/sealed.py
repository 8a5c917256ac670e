"""Pickles in the output of ranks, which count only with a code by the key of their job.

Ranks print more than what they are asked for, and their output may lie in files that others read. So a mark
that is printed proves nothing. The key is never printed: ranks get it over the encrypted channel of the job.
"""

from __future__ import annotations

import hmac
import pickle
from typing import Any

_SIZE = 32


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
