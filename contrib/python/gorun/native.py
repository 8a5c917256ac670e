"""libgorun, the native library, which carries out all operations: how it is loaded.

It comes with this package, which may lie in a zip, so it is loaded from memory. Frameworks that call C, such
as TensorFlow and JAX, use the same session as Python. Where it cannot be loaded init() says why.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
import threading

from gorun.exceptions import HorovodInternalError

VERSION = 2  # GORUN_LIBRARY in contrib/c/gorun.h

_MFD_EXEC = 0x10  # unknown to kernels before 6.3, where every memfd may be executed
_NAME = "libgorun.so"


class _State:
    tried = False
    library: ctypes.CDLL | None = None
    descriptor = -1
    reason = ""


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
    """Return the library, which is in the world of init()."""
    from gorun import basics  # which imports this module

    basics.world()
    path()
    assert _state.library is not None
    return _state.library


def error() -> str:
    """Return the text of the library's last failure in this thread."""
    assert _state.library is not None
    text: bytes = _state.library.gorun_error()
    return text.decode(errors="replace")


def _load() -> None:
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
    """A child may have been made while a thread held the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)
