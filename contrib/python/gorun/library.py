"""What libgorun offers to bindings: contrib/c/session/binding.h.

Its functions are called with the interpreter's lock held, and release it while they wait or copy much. A
signal whose handler raises ends any wait; the exception comes out of the call.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from . import native
from .counters import counters
from .errors import Aborted

HANDLE, CODE, TOOK, DATA, BYTES, ROWS, COUNTS, COUNT, BEGUN = range(9)  # of a ticket
MET, MISSED = -1, -2  # handles of what was carried out in a slot, and of a turn that was not
UNFINISHED = -2  # the code of a wait whose time is over
STAYS, TURN = 1, 2  # the caller waits at once; in one order of all ranks
FOLLOWING, LEADING = 1, 2


class Ticket(ctypes.c_int64 * 9):  # type: ignore[misc]
    """An operation: its handle once it was submitted, 0 before that and after its end, and how it ended.

    The library writes it within its calls, so it is right whenever Ctrl-C comes.
    """

    __slots__ = ("kind", "shape")


TENSOR = struct.Struct("=2Q")  # where a call's tensor and its target lie, which pack() writes first
_HEAD = struct.Struct("=4Q3d12i")
_DIMS = tuple(struct.Struct(f"={n}q") for n in range(33))


def pack(
    ticket: Ticket, kind: int, name: str, dtype: int, shape: Sequence[int], source: int, target: int,
    op: int = 1, root: int = 0, group: int = 0, prescale: float = 1.0, postscale: float = 1.0, wire: int = 0,
    splits: Sequence[int] = (), pieces: Sequence[int] = (), follows: int = 0, stays: int = 0, mark: int = 0,
    seconds: float = -1.0,
) -> bytes:  # fmt: skip
    """Encode a call for start(). source and target are addresses, pieces three numbers for each."""
    label = name.encode()
    ndim = len(shape)
    length = len(label) + 8 * ndim + 8 * len(pieces) + 4 * len(splits)
    rest = 8 - length % 8  # one byte at least ends the name
    dims = _DIMS[ndim].pack(*shape) if ndim < len(_DIMS) else struct.pack(f"={ndim}q", *shape)
    if pieces:
        dims += struct.pack(f"={len(pieces)}Q", *pieces)
    if splits:
        dims += struct.pack(f"={len(splits)}i", *splits)
    head = _HEAD.pack(
        source, target, ctypes.addressof(ticket), mark, prescale, postscale, seconds, kind, dtype, op, wire,
        root, group, ndim, len(splits), len(pieces) // 3, follows, stays, _HEAD.size + length + rest,
    )  # fmt: skip
    return head + dims + label + bytes(rest)


class Library:
    """The functions."""

    def __init__(self, path: str) -> None:
        api = ctypes.PyDLL(path)
        self.start = api.gorun_binding_start  # two arguments that need no types, which take time
        self.wait = api.gorun_binding_wait
        self.release = api.gorun_binding_release
        self.join = api.gorun_binding_join
        self.leave = api.gorun_binding_leave
        self.joined = api.gorun_joined
        self.alloc = api.gorun_binding_alloc
        self.alloc.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
        self.free = api.gorun_free
        self.free.argtypes = [ctypes.c_void_p]
        self.pin = api.gorun_binding_pin
        self.pin.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.attend = api.gorun_binding_attend
        self.attend.argtypes = [ctypes.c_void_p, ctypes.c_double]
        self.kept = api.gorun_binding_kept
        self.lost = api.gorun_binding_lost
        self.news = api.gorun_binding_news
        self.ends = api.gorun_binding_ends
        self.ends.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double]
        self.has_slot = api.gorun_binding_has_slot
        self._error = api.gorun_error
        self._error.restype = ctypes.c_char_p
        counters.on_help = api.gorun_binding_help
        own = ctypes.pythonapi
        begin = api.gorun_binding_open
        begin.argtypes = [ctypes.c_void_p] * 4
        begin.restype = None
        hooks = own.PyEval_SaveThread, own.PyEval_RestoreThread, own.PyErr_CheckSignals
        begin(*(ctypes.cast(hook, ctypes.c_void_p) for hook in hooks), counters.address())

    def error(self) -> str:
        """Return the text of the last failure in this thread."""
        text: bytes = self._error()
        return text.decode(errors="replace")


_opened: list[Library] = []


def library() -> Library:
    """Return the library. Raise Aborted where it cannot be loaded."""
    if not _opened:
        if native.library() is None:
            raise Aborted(f"gorun's native library is not there: {native.reason()}")
        _opened.append(Library(native.path()))
    return _opened[0]


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_view.restype = ctypes.py_object
_READ, _WRITE = 0x100, 0x200


def memory(address: int, nbytes: int, writable: bool = True) -> Any:
    """Return a view of memory, which it does not keep."""
    return _view(address, nbytes, _WRITE if writable else _READ) if nbytes else memoryview(bytearray())
