"""libgorun, the native library: gorun's collectives for frameworks that call C, such as TensorFlow and JAX.

The library comes with this package, which may lie in a zip, so it is loaded from memory. A process that uses
it stays one rank: the library's session is a companion of Python's (worker/session/codec/PROTOCOL.md). Where
it cannot be loaded Python does without.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
import threading
from typing import Any

from gorun import basics
from gorun.exceptions import HorovodInternalError

VARIABLE = "GORUN_NATIVE"  # 0 switches the library off
VERSION = 1  # GORUN_LIBRARY in contrib/c/gorun.h

_MFD_EXEC = 0x10  # unknown to kernels before 6.3, where every memfd may be executed
_NAME = "libgorun.so"


class _State:
    tried = False
    library: ctypes.CDLL | None = None
    descriptor = -1
    reason = ""
    world: Any = None  # that attach() has joined


_state = _State()
_lock = threading.RLock()


def library() -> ctypes.CDLL | None:
    """Return the library, or None: reason() returns why."""
    with _lock:
        if not _state.tried:
            _state.tried = True
            try:
                _load()
            except (OSError, AttributeError) as error:
                _state.reason = str(error)
        return _state.library


def reason() -> str:
    """Return why there is no library, "" if there is one."""
    library()
    return _state.reason


def verbose() -> bool:
    """Report whether this process shows what carries out its operations: one of each host, for gorun -v."""
    wanted = os.environ.get("GORUN_VERBOSE", "0") not in ("", "0")
    return wanted and os.environ.get("GORUN_LOCAL_RANK", "0") == "0"


def path() -> str:
    """Return a path by which this process, and no other, can load the library again, as frameworks do."""
    if library() is None:
        raise HorovodInternalError(f"gorun's native library is not there: {_state.reason}")
    return f"/proc/self/fd/{_state.descriptor}"


def attach() -> ctypes.CDLL:
    """Join the world of init() with the library, unless that was done, and return it. shutdown() ends it."""
    world = basics.world()
    found = library()
    if found is None:
        raise HorovodInternalError(f"gorun's native library is not there: {_state.reason}")
    with _lock:
        if _state.world is not world and not speaks():
            if found.gorun_init_companion():
                raise HorovodInternalError(error())
            _state.world = world
            world.on_close(_detach)
    return found


def error() -> str:
    """Return the text of the library's last failure in this thread."""
    assert _state.library is not None
    text: bytes = _state.library.gorun_error()
    return text.decode(errors="replace")


def speaks() -> bool:
    """Report whether the library has a session that attach() has not opened: code in C has joined."""
    found = _state.library
    return found is not None and _state.world is None and found.gorun_joined() != 0


def _detach() -> None:
    with _lock:
        _state.world = None
        assert _state.library is not None
        _state.library.gorun_finalize()


def _load() -> None:
    if os.environ.get(VARIABLE) == "0":
        _state.reason = f"{VARIABLE}=0 switches it off"
        return
    try:
        data = pkgutil.get_data("gorun", _NAME)
    except FileNotFoundError:
        data = None
    if data is None:
        _state.reason = "this package comes without it"
        return
    try:
        descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:
        descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    try:
        os.truncate(descriptor, len(data))
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        found = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        version = found.gorun_library()
        if version != VERSION:
            raise OSError(f"it has version {version}, and this package needs {VERSION}")
    except BaseException:
        os.close(descriptor)
        raise
    found.gorun_error.restype = ctypes.c_char_p
    _state.descriptor, _state.library = descriptor, found


def _forked() -> None:
    """A child has no session; it may have been made while a thread held the lock."""
    global _lock
    _lock = threading.RLock()
    _state.world = None


os.register_at_fork(after_in_child=_forked)
