"""Copies of a GPU's gradients to the arena and back, by pinned memory and a stream of their own.

The arena is registered with the driver, region by region, so the GPU reads and writes it directly: copies are
queued, and no thread waits for each. Before the engine reads a bucket, a thread waits once for its copies, by
an event. On the way back the caller's stream waits, not the caller. If the driver refuses to register a
region (some virtual GPUs, a limit on locked memory), the same copies go through its own buffers.

This needs no peer access, no NCCL and no GPU for one process alone: MIG slices and vGPUs will do. It starts
no thread.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from gorun.session import Region


_everywhere: weakref.WeakSet[Copies] = weakref.WeakSet()


class Copies:
    """The copies of one device."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._stream = cuda.Stream(device)
        self._done = cuda.Event()
        _everywhere.add(self)

    @contextlib.contextmanager
    def queue(self) -> Iterator[None]:
        """Queue the copies made in this context, after what the caller has queued so far."""
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        with self._cuda.stream(self._stream):
            yield

    def out(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy a tensor of the GPU to host memory, which may be read after wait()."""
        with self.queue():
            target.copy_(source, non_blocking=True)
        if source.is_cuda:  # keeps its memory from reuse when the caller drops it
            source.record_stream(self._stream)

    def wait(self) -> None:
        """Wait for everything queued: host memory holds it."""
        self._done.record(self._stream)
        self._done.synchronize()

    def follow(self) -> None:
        """Order what the caller queues from now on after the copies, without waiting here."""
        self._cuda.current_stream(self._device).wait_stream(self._stream)

    def settle(self) -> None:
        """Wait for everything queued, so that host memory may be reused."""
        self._stream.synchronize()

    def pin(self, region: Region) -> None:
        """Register a region with the driver, once, until it is unmapped."""
        if region.release is not None:
            return
        runtime = self._cuda.cudart()
        address = region.address
        if int(runtime.cudaHostRegister(address, region.size, 0)) == 0:

            def release() -> None:
                for other in _everywhere:  # other devices may read it just as well
                    other.settle()
                runtime.cudaHostUnregister(address)

            region.release = release
            return
        region.release = lambda: None  # registered only once
        # The runtime keeps the error for its next query, which would be an operation of the user's.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self._device)


_copies: dict[torch.device, Copies] = {}


def copies(device: torch.device) -> Copies | None:
    """Return the copies of a CUDA device, None for any other device."""
    if device.type != "cuda":
        return None
    if device not in _copies:
        _copies[device] = Copies(device)
    return _copies[device]
