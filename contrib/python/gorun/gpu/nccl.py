"""NCCL, as much of it as gorun needs, on addresses and streams as plain integers."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

from gorun.gpu import foreign
from gorun.gpu.foreign import Failed

__all__ = ["DATA_TYPES", "IN_PROGRESS", "SIGNATURES", "SUCCESS", "Failed", "Nccl", "nccl"]

SUCCESS = 0
IN_PROGRESS = 7

DATA_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9,
}  # fmt: skip
SUM, PROD, MAX, MIN, AVG = range(5)

CONFIG_MAGIC = 0xCAFEBEEF
CONFIG_VERSION = 21400  # the first with a configuration: what later ones added keeps its default


class UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", ctypes.c_ubyte * 128),)


class Config(ctypes.Structure):
    """ncclConfig_t, as it was in its first version; a library of any later one takes it by its size."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    )


_int, _size, _address, _out = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER
_comm, _stream = ctypes.c_void_p, ctypes.c_void_p

SIGNATURES: foreign.Signatures = {
    "ncclGetVersion": [_out(_int)],
    "ncclGetUniqueId": [_out(UniqueId)],
    "ncclCommInitRankConfig": [_out(_comm), _int, UniqueId, _int, _out(Config)],
    "ncclCommFinalize": [_comm],
    "ncclCommDestroy": [_comm],
    "ncclCommAbort": [_comm],
    "ncclCommGetAsyncError": [_comm, _out(_int)],
    "ncclAllReduce": [_address, _address, _size, _int, _int, _comm, _stream],
    "ncclBroadcast": [_address, _address, _size, _int, _int, _comm, _stream],
    "ncclAllGather": [_address, _address, _size, _int, _comm, _stream],
    "ncclReduceScatter": [_address, _address, _size, _int, _int, _comm, _stream],
    "ncclSend": [_address, _size, _int, _int, _comm, _stream],
    "ncclRecv": [_address, _size, _int, _int, _comm, _stream],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
}


def candidates() -> list[str]:
    """Return where the library may be: what the process has loaded, NVIDIA's wheels, the system's."""
    loaded = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")
            if "/libnccl.so" in line and "/" + path[2] not in loaded:
                loaded.append("/" + path[2])
    wheels = [os.path.join(path, "nvidia", "nccl", "lib", "libnccl.so.2") for path in sys.path if path]
    return [*loaded, *filter(os.path.exists, wheels), "libnccl.so.2"]


class Nccl:
    """The library. OSError if there is none, or an older one than 2.14."""

    def __init__(self, library: str | None = None) -> None:
        self._library = foreign.load(candidates() if library is None else [library])
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self.call = foreign.bind(self._library, SIGNATURES, self._explain, (SUCCESS, IN_PROGRESS))

    def _explain(self, code: int) -> str:
        text = self._library.ncclGetErrorString(ctypes.c_int(code))
        return (text or b"unknown error").decode()

    def explain(self, code: int) -> str:
        """Return the text of a result."""
        return f"NCCL: {self._explain(code)} ({code})"

    def version(self) -> int:
        """Return the library's version, for example 22705."""
        value = ctypes.c_int()
        self.call["ncclGetVersion"](ctypes.byref(value))
        return value.value

    def unique_id(self) -> bytes:
        """Return what the ranks of a new communicator must share."""
        made = UniqueId()
        self.call["ncclGetUniqueId"](ctypes.byref(made))
        return bytes(made.internal)

    def begin(self, unique_id: bytes, rank: int, size: int) -> int:
        """Begin to set up a communicator, which goes on until state() is not IN_PROGRESS; return it."""
        comm = ctypes.c_void_p()
        config = Config(ctypes.sizeof(Config), CONFIG_MAGIC, CONFIG_VERSION, 0)
        self.call["ncclCommInitRankConfig"](
            ctypes.byref(comm), size, UniqueId.from_buffer_copy(unique_id), rank, ctypes.byref(config)
        )
        return comm.value or 0

    def state(self, comm: int) -> int:
        """Return SUCCESS, IN_PROGRESS or the error that a communicator has come to."""
        value = ctypes.c_int()
        self.call["ncclCommGetAsyncError"](comm, ctypes.byref(value))
        return value.value


def dotted(version: int) -> str:
    """Return a version as NVIDIA writes it: 2.27.5 for 22705."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


@functools.cache
def nccl() -> Nccl:
    """Return the library, opened once."""
    return Nccl()
