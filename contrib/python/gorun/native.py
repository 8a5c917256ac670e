"""libgorun, the native library, which carries out all operations: how it is loaded.

It comes with this package, which may lie in a zip, so it is loaded from memory or, where memory may not be
executed, from a file without a name in the user's cache. Frameworks that call C, such as TensorFlow and JAX,
use the same session as Python. Where it cannot be loaded init() says why.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
import threading
from typing import Callable

from gorun import bytecode
from gorun.exceptions import HorovodInternalError

VERSION = 2  # GORUN_LIBRARY in contrib/c/gorun.h

_MFD_EXEC = 0x10  # unknown to kernels before 6.3, where every memfd may be executed
_NAME = "libgorun.so"


class _State:
    tried = False
    library: ctypes.CDLL | None = None
    descriptor = -1
    origin = "from memory"
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


def origin() -> str:
    """Return from where the library was loaded, "" if it was not."""
    return "" if library() is None else _state.origin


def verbose() -> bool:
    """Report whether this process shows what carries out its operations: one of each host, for gorun -v."""
    wanted = os.environ.get("GORUN_VERBOSE", "0") not in ("", "0")
    return wanted and os.environ.get("GORUN_LOCAL_RANK", "0") == "0"


def path() -> str:
    """Return a path by which this process, and no other, can load the library again, as frameworks do."""
    if library() is None:
        raise HorovodInternalError(f"gorun's native library is not there: {_state.reason}")
    return f"/proc/self/fd/{_state.descriptor}"


def copied() -> str:
    """Return such a path of a copy, which is another library to a framework."""
    with open(path(), "rb") as file:
        data = file.read()
    return f"/proc/self/fd/{_written(_in_memory if _state.origin == _State.origin else _in_cache, data)}"


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
        found = _loaded(_in_memory, data)
    except OSError as refused:
        _state.origin = f"from a file in {bytecode.folder()}, as memory refuses: {refused}"
        try:
            found = _loaded(_in_cache, data)
        except OSError as error:
            raise OSError(f"{refused}; and {bytecode.folder()} refuses: {error}") from error
    version = found.gorun_library()
    if version != VERSION:
        raise OSError(f"it has version {version}, and this package needs {VERSION}")
    found.gorun_error.restype = ctypes.c_char_p
    _state.library = found


def _in_memory() -> int:
    try:
        return os.memfd_create(_NAME, os.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:
        return os.memfd_create(_NAME, os.MFD_CLOEXEC)


def _in_cache() -> int:
    import tempfile  # takes time

    folder = bytecode.open_folder()
    try:
        with tempfile.TemporaryFile(dir=f"/proc/self/fd/{folder}") as file:  # nobody else can open it
            return os.dup(file.fileno())
    finally:
        os.close(folder)


def _written(make: Callable[[], int], data: bytes) -> int:
    descriptor = make()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _loaded(make: Callable[[], int], data: bytes) -> ctypes.CDLL:
    _state.descriptor = _written(make, data)
    try:
        return ctypes.CDLL(f"/proc/self/fd/{_state.descriptor}")
    except BaseException:
        os.close(_state.descriptor)
        raise


def _forked() -> None:
    """A child may have been made while a thread held the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)
