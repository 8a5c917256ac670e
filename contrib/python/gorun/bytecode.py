"""Keeps the compiled form of this package, which Python compiles in each process anew where it lies in a zip.

Each module has a file in the user's cache. A file counts only if it is the user's own and others may write
neither to it nor to its directory, and if it was made of the same source by the same Python.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import sys
import time
from importlib.util import MAGIC_NUMBER, source_hash
from types import CodeType
from typing import Any
from zipimport import zipimporter

_WRITING = 60  # seconds, after which a file that is being written was left by a process that ended


class Importer(zipimporter):
    """Imports from a zip, and compiles a module if that was not done before."""

    def get_filename(self, fullname: str) -> str:
        """Return the path of a module; without compiling it, which zipimporter does to find out."""
        part = fullname.rpartition(".")[2] + ("/__init__" if self.is_package(fullname) else "")
        return f"{self.archive}/{self.prefix}{part}.py"

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of a module."""
        path = self.get_filename(fullname)
        stamp = MAGIC_NUMBER + source_hash(path.encode() + b"\0" + self.get_data(path))
        name = f"{fullname}.{sys.flags.optimize}"
        try:
            kept = _read(name)
        except OSError:
            kept = b""
        head = len(stamp) + 8
        if kept[:head] == stamp + source_hash(kept[head:]):
            return marshal.loads(kept[head:])
        code = super().get_code(fullname)
        if not sys.dont_write_bytecode:
            data = marshal.dumps(code)
            try:
                _write(name, stamp + source_hash(data) + data)
            except OSError:
                pass  # no home, or no room: it is compiled anew next time
        return code


def use(loader: Any, package: str) -> None:
    """Let the package that a loader has loaded, and that lies there, import its modules in this way.

    Python 3.9 compiles modules of a zip by itself, and asks no importer for their code.
    """
    if sys.version_info < (3, 10) or sys.implementation.cache_tag is None:
        return
    if not isinstance(loader, zipimporter):
        return

    def importer(path: str) -> Importer:
        if path != package and not path.startswith(f"{package}/"):
            raise ImportError
        return Importer(path)

    sys.path_hooks.insert(0, importer)
    sys.path_importer_cache.pop(package, None)  # the one that has found this module


def folder() -> str:
    """Return the directory of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    cache = cache if cache.startswith("/") else os.path.expanduser("~/.cache")
    return f"{cache}/gorun/{sys.implementation.cache_tag}"


def _own(descriptor: int) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(errno.EACCES, "it is not the user's own, or others may write to it")


def open_folder(make: bool = True) -> int:
    """Open that directory, which nobody else may write to. make: make it first, if it is not there."""
    path = folder()
    for above in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path), path) if make else ():
        with contextlib.suppress(FileExistsError):
            os.mkdir(above, 0o700)
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _own(opened)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _read(name: str) -> bytes:
    here = open_folder(make=False)
    try:
        with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here), "rb") as file:
            _own(file.fileno())
            return file.read()
    finally:
        os.close(here)


def _write(name: str, data: bytes) -> None:
    here = open_folder()
    try:
        new = f"{name}.new"
        try:
            to = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=here)
        except FileExistsError:  # another rank writes it
            began = os.stat(new, dir_fd=here, follow_symlinks=False).st_mtime
            if time.time() - began > _WRITING:
                os.unlink(new, dir_fd=here)
            return
        with open(to, "wb") as file:
            file.write(data)
        os.rename(new, name, src_dir_fd=here, dst_dir_fd=here)
    finally:
        os.close(here)
