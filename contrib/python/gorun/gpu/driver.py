"""CUDA's driver API, as much as gorun needs: devices, streams, events, copies, pinned and shared memory.

Handles and addresses are plain integers, as torch gives them out: data_ptr(), cuda_stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import uuid
from collections.abc import Iterator

from gorun.gpu import foreign
from gorun.gpu.foreign import Failed

__all__ = ["SIGNATURES", "Device", "Driver", "Event", "Failed", "Stream", "device", "driver"]

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
NOT_READY = 600
CAPTURE_NONE = 0
CAPTURE_RELAXED = 2
STREAM_NON_BLOCKING = 1  # the stream 0 does not wait for it, nor it for the stream 0
EVENT_DISABLE_TIMING = 2
IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1


class Uuid(ctypes.Structure):
    """CUuuid."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


class IpcMemHandle(ctypes.Structure):
    """CUipcMemHandle, which travels to other processes as its bytes."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


_int, _uint, _size, _address = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p
_handle, _pointer = ctypes.c_void_p, ctypes.c_uint64
_out = ctypes.POINTER

SIGNATURES: foreign.Signatures = {
    "cuInit": [_uint],
    "cuDriverGetVersion": [_out(_int)],
    "cuDeviceGetCount": [_out(_int)],
    "cuDeviceGet": [_out(_int), _int],
    "cuDeviceGetName": [ctypes.c_char_p, _int, _int],
    "cuDeviceGetUuid_v2": [_out(Uuid), _int],
    "cuDeviceCanAccessPeer": [_out(_int), _int, _int],
    "cuDevicePrimaryCtxRetain": [_out(_handle), _int],
    "cuCtxPushCurrent_v2": [_handle],
    "cuCtxPopCurrent_v2": [_out(_handle)],
    "cuStreamCreate": [_out(_handle), _uint],
    "cuStreamDestroy_v2": [_handle],
    "cuStreamSynchronize": [_handle],
    "cuStreamWaitEvent": [_handle, _handle, _uint],
    "cuStreamIsCapturing": [_handle, _out(_int)],
    "cuThreadExchangeStreamCaptureMode": [_out(_int)],
    "cuEventCreate": [_out(_handle), _uint],
    "cuEventRecord": [_handle, _handle],
    "cuEventQuery": [_handle],
    "cuEventSynchronize": [_handle],
    "cuEventDestroy_v2": [_handle],
    "cuMemAlloc_v2": [_out(_pointer), _size],
    "cuMemFree_v2": [_pointer],
    "cuMemcpyAsync": [_pointer, _pointer, _size, _handle],
    "cuMemHostRegister_v2": [_address, _size, _uint],
    "cuMemHostUnregister": [_address],
    "cuIpcGetMemHandle": [_out(IpcMemHandle), _pointer],
    "cuIpcOpenMemHandle_v2": [_out(_pointer), IpcMemHandle, _uint],
    "cuIpcCloseMemHandle": [_pointer],
    "cuModuleLoadData": [_out(_handle), _address],
    "cuModuleUnload": [_handle],
    "cuModuleGetFunction": [_out(_handle), _handle, ctypes.c_char_p],
    "cuLaunchKernel": [_handle, *[_uint] * 7, _handle, _out(_address), _out(_address)],
}


class Driver:
    """The driver of this machine's GPUs. OSError if there is none, Failed if it finds no GPU."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._library = foreign.load([library])
        self.call = foreign.bind(self._library, SIGNATURES, self._explain, (0, NOT_READY))
        self.call["cuInit"](0)

    def _explain(self, code: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        return (text.value or b"unknown error").decode()

    def version(self) -> int:
        """Return the newest version of CUDA that the driver serves, for example 12080."""
        return self._int("cuDriverGetVersion")

    def count(self) -> int:
        """Return the number of devices that this process may use."""
        return self._int("cuDeviceGetCount")

    def reaches(self, device: int, peer: int) -> bool:
        """Report whether a device can access the memory of another."""
        return bool(self._int("cuDeviceCanAccessPeer", device, peer))

    def uuid(self, device: int) -> str:
        """Return the UUID of a device, or of the part of one (MIG) that it is."""
        raw = Uuid()
        self.call["cuDeviceGetUuid_v2"](ctypes.byref(raw), device)
        return str(uuid.UUID(bytes=bytes(raw.bytes)))

    def name(self, device: int) -> str:
        """Return the name of a device's model; that of a part (MIG) contains MIG."""
        text = ctypes.create_string_buffer(256)
        self.call["cuDeviceGetName"](text, len(text), device)
        return text.value.decode(errors="replace")

    def capturing(self, stream: int) -> bool:
        """Report whether a stream is being captured into a graph."""
        status = ctypes.c_int()
        self.call["cuStreamIsCapturing"](stream, ctypes.byref(status))
        return status.value != CAPTURE_NONE

    def relax(self) -> None:
        """Let the calling thread do what it likes while others capture: it leaves their streams alone."""
        self._exchange_mode(CAPTURE_RELAXED)

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """Let a thread of the script do the same for a while: another one may capture a stream of its own."""
        before = self._exchange_mode(CAPTURE_RELAXED)
        try:
            yield
        finally:
            self._exchange_mode(before)

    def _exchange_mode(self, mode: int) -> int:
        value = ctypes.c_int(mode)
        self.call["cuThreadExchangeStreamCaptureMode"](ctypes.byref(value))
        return value.value

    def _int(self, name: str, *more: int) -> int:
        value = ctypes.c_int()
        self.call[name](ctypes.byref(value), *more)
        return value.value


@functools.cache
def driver() -> Driver:
    """Return the driver, opened once."""
    return Driver()


class Device:
    """One device, with its primary context, which frameworks use, too. The process keeps it."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self._call = driver.call
        number, context = ctypes.c_int(), ctypes.c_void_p()
        self._call["cuDeviceGet"](ctypes.byref(number), ordinal)
        self.number = number.value
        self._call["cuDevicePrimaryCtxRetain"](ctypes.byref(context), number)
        self._context = context

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the device that of the calling thread, for calls of the driver and of NCCL."""
        self._call["cuCtxPushCurrent_v2"](self._context)
        try:
            yield
        finally:
            self._call["cuCtxPopCurrent_v2"](ctypes.byref(ctypes.c_void_p()))

    def alloc(self, nbytes: int) -> int:
        """Return the address of new memory of the device."""
        address = ctypes.c_uint64()
        with self.current():
            self._call["cuMemAlloc_v2"](ctypes.byref(address), nbytes)
        return address.value

    def free(self, address: int) -> None:
        """Free memory of the device."""
        with self.current():
            self._call["cuMemFree_v2"](address)

    def pin(self, address: int, nbytes: int) -> None:
        """Let the device read and write host memory by itself."""
        with self.current():
            self._call["cuMemHostRegister_v2"](address, nbytes, 0)

    def unpin(self, address: int) -> None:
        """Take back pin()."""
        with self.current():
            self._call["cuMemHostUnregister"](address)

    def share(self, address: int) -> bytes:
        """Return the handle by which other processes can open memory that alloc() returned."""
        handle = IpcMemHandle()
        with self.current():
            self._call["cuIpcGetMemHandle"](ctypes.byref(handle), address)
        return bytes(handle.reserved)

    def open(self, handle: bytes) -> int:
        """Return the address of memory that another process shares."""
        address = ctypes.c_uint64()
        with self.current():
            self._call["cuIpcOpenMemHandle_v2"](
                ctypes.byref(address), IpcMemHandle.from_buffer_copy(handle), IPC_MEM_LAZY_ENABLE_PEER_ACCESS
            )
        return address.value

    def close_shared(self, address: int) -> None:
        """Unmap what open() returned."""
        with self.current():
            self._call["cuIpcCloseMemHandle"](address)


@functools.cache
def device(ordinal: int) -> Device:
    """Return a device, of which a process has one: each would hold the context once more."""
    return Device(driver(), ordinal)


class Stream:
    """A stream of a device, which does in order what it is given."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._call = device.driver.call
        handle = ctypes.c_void_p()
        with device.current():
            self._call["cuStreamCreate"](ctypes.byref(handle), STREAM_NON_BLOCKING)
        self.handle = handle.value or 0

    def close(self) -> None:
        """End the stream."""
        with self._device.current():
            self._call["cuStreamDestroy_v2"](self.handle)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy between memory of devices and of the host, in any direction."""
        with self._device.current():
            self._call["cuMemcpyAsync"](to, source, nbytes, self.handle)

    def synchronize(self) -> None:
        """Wait until everything is done."""
        with self._device.current():
            self._call["cuStreamSynchronize"](self.handle)


class Event:
    """A point in a stream."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._call = device.driver.call
        handle = ctypes.c_void_p()
        with device.current():
            self._call["cuEventCreate"](ctypes.byref(handle), EVENT_DISABLE_TIMING)
        self.handle = handle.value or 0

    def close(self) -> None:
        """End the event; streams that wait for it go on waiting."""
        self._call["cuEventDestroy_v2"](self.handle)

    def record(self, stream: int) -> None:
        """Make the event what a stream was given so far."""
        with self._device.current():
            self._call["cuEventRecord"](self.handle, stream)

    def before(self, stream: int) -> None:
        """Let a stream go on only after the event."""
        with self._device.current():
            self._call["cuStreamWaitEvent"](stream, self.handle, 0)

    def over(self) -> bool:
        """Report whether the event was reached."""
        with self._device.driver.relaxed():
            return self._call["cuEventQuery"](self.handle) == 0

    def synchronize(self) -> None:
        """Wait for the event."""
        self._call["cuEventSynchronize"](self.handle)
