"""Memory of a GPU that other processes may read: what operations copy through, and how it is shared.

Memory comes in slabs, which are kept until the process ends. An exported slab must not be freed while another
process has it open, and a process cannot know when all others have closed it. Each slab begins with a token,
by which a process that opens it sees that it has the right one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import threading
from collections import defaultdict
from typing import NamedTuple

from gorun import constants
from gorun.gpu import driver
from gorun.gpu.driver import Device, Failed, Stream
from gorun.gpu.kernels import Kernels, Wrong

HEAD_BYTES = 4096  # at the start of a slab, with its token
SLAB_BYTES = 2 << 20  # at least: the driver gives out no less, and exports no part of it
_LEAST_BYTES = 4096
_TOKEN_BYTES = 16
_PLACE = struct.Struct(f"64s{_TOKEN_BYTES}sq")
PLACE_BYTES = _PLACE.size


class Slab(NamedTuple):
    """Memory that was exported once."""

    address: int
    handle: bytes
    token: bytes


class Piece(NamedTuple):
    """Memory of an operation."""

    slab: Slab
    address: int
    nbytes: int

    def place(self) -> bytes:
        """Return how other processes find it."""
        return _PLACE.pack(self.slab.handle, self.slab.token, self.address - self.slab.address)


class Staging:
    """The pieces and kernels of a process on one device."""

    def __init__(self, device: Device) -> None:
        self.kernels = Kernels(device)
        self._device = device
        self._lock = threading.Lock()
        self._free: dict[int, list[Piece]] = defaultdict(list)  # by size
        self.taken = 0  # pieces that are in use

    def take(self, nbytes: int) -> Piece:
        """Return a piece of at least so many bytes; Failed if there is none, or none that can be shared."""
        size = max(_LEAST_BYTES, 1 << (nbytes - 1).bit_length())  # few sizes: it is used again
        with self._lock:
            if not self._free[size]:
                slab, count = self._new(size)
                first = slab.address + HEAD_BYTES
                self._free[size] = [Piece(slab, first + i * size, size) for i in range(count)]
            self.taken += 1
            return self._free[size].pop()

    def give_back(self, piece: Piece) -> None:
        """Take back a piece that nobody reads any more."""
        with self._lock:
            self._free[piece.nbytes].append(piece)
            self.taken -= 1

    def _new(self, size: int) -> tuple[Slab, int]:
        """Return a new slab, and how many pieces it has."""
        count = max(1, (SLAB_BYTES - HEAD_BYTES) // size)
        address = self._device.alloc(max(SLAB_BYTES, HEAD_BYTES + count * size))
        try:
            slab = Slab(address, self._device.share(address), os.urandom(_TOKEN_BYTES))
            _transfer(self._device, address, slab.token, out=True)
        except Exception:
            self._device.free(address)
            raise
        return slab, count


class Opened:
    """The slabs of other processes that this one has open."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._slabs: dict[bytes, tuple[int, bytes]] = {}  # address and token, by handle

    def find(self, place: bytes) -> int:
        """Return the address of a piece of another process; Failed or Wrong if it cannot be had."""
        handle, token, offset = _PLACE.unpack(place)
        address, known = self._slabs.get(handle, (0, b""))
        if not address:
            address = self._device.open(handle)
            self._slabs[handle] = address, b""  # close() finds it, even if its token cannot be read
            known = _transfer(self._device, address, bytes(_TOKEN_BYTES), out=False)
            self._slabs[handle] = address, known
        if known != token:
            raise Wrong("another process shares memory of the GPU, and this one finds other memory there")
        return address + int(offset)

    def close(self) -> None:
        """Close all."""
        for address, _ in self._slabs.values():
            with contextlib.suppress(Failed):
                self._device.close_shared(address)
        self._slabs.clear()


def _transfer(device: Device, address: int, data: bytes, out: bool) -> bytes:
    """Copy bytes to a device, or back from it, and wait for them."""
    host = ctypes.create_string_buffer(data, len(data))
    stream = Stream(device)
    try:
        ends = (address, ctypes.addressof(host)) if out else (ctypes.addressof(host), address)
        stream.copy(*ends, len(data))
        stream.synchronize()
    finally:
        stream.close()
    return host.raw


@functools.cache
def staging(ordinal: int) -> Staging:
    """Return what this process has on a device."""
    return Staging(driver.device(ordinal))


def trial(ordinal: int) -> str:
    """Return why this process cannot share memory of a device, or reduce it there; "" if it can."""
    try:
        own = staging(ordinal)
        own.give_back(own.take(_LEAST_BYTES))
        own.kernels.get("float32", constants.SUM, 2)
    except (OSError, Failed, Wrong) as error:
        return str(error)
    return ""
