"""Sums over hosts of what lies in memory of a GPU: it travels in chunks, by gorun's engine.

While the engine has a chunk, the next one comes from the GPU and the last one goes back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Union

from gorun import constants
from gorun.bindings import DTYPES
from gorun.gpu.calls import itemsize
from gorun.gpu.driver import Device, Event, Failed, Stream
from gorun.world import Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gorun.session import Block, Region
    from gorun.world import World

CHUNK_BYTES = 4 << 20


# What a generator yields to go on once it is over, of the GPU or of gorun.
Awaited = Union[Event, Operation]
Steps = Generator[Awaited, None, None]


class _Memory:
    """A block that chunks lie in. World frees it once the engine is done with all of them."""

    def __init__(self, block: Block, chunks: Sequence[Operation]) -> None:
        self._block = block
        self._chunks = chunks

    def over(self) -> bool:
        """Report whether the engine uses the block no more."""
        return all([chunk.over() for chunk in self._chunks])

    def release(self) -> None:
        """Free the block."""
        self._block.free()


class Shares:
    """Sums over the ranks of other hosts that have the same part of a result."""

    def __init__(self, world: World, device: Device, peers: Sequence[int]) -> None:
        """peers: those ranks and this one. A single one has nothing to add up."""
        self.group = 0
        self._world = world
        self._device = device
        self._out, self.back = Stream(device), Stream(device)  # back: what follows it sees the sums
        if len(peers) > 1:
            self.group = world.session.add_group(peers, constants.DECLARED + (peers[0] << 15) + (1 << 15) - 1)

    def close(self) -> None:
        """End the streams."""
        for stream in (self._out, self.back):
            with contextlib.suppress(Failed):
                stream.close()

    def reduce(self, name: str, dtype: str, op: int, address: int, count: int) -> Steps:
        """Reduce elements of the GPU in place; yields what it waits for."""
        if not self.group or not count:
            return
        size = itemsize(dtype)
        block = self._world.alloc(count * size)
        chunks: list[Operation] = []
        try:
            self._pin(block.home())
            yield from self._in_chunks(name, dtype, op, block, address, count * size, chunks)
        except BaseException:
            self._out.synchronize()
            raise
        finally:
            self.back.synchronize()  # it may still read the block
            self._world.abandon(_Memory(block, chunks))  # type: ignore[arg-type]  # mostly at once

    def _in_chunks(
        self, name: str, dtype: str, op: int, block: Block, address: int, nbytes: int,
        chunks: list[Operation],
    ) -> Steps:  # fmt: skip
        host = block.address
        chunk = CHUNK_BYTES // itemsize(dtype) * itemsize(dtype)
        places = [(at, min(chunk, nbytes - at)) for at in range(0, nbytes, chunk)]
        arrived: list[Event] = []
        handles = []
        try:
            for at, n in places:
                self._out.copy(host + at, address + at, n)
                arrived.append(Event(self._device))
                arrived[-1].record(self._out.handle)
            for number, (at, n) in enumerate(places):
                yield arrived[number]
                chunks.append(Operation(self._world, self.group))
                handles.append(self._reduce(chunks[-1], f"{name}.{number}", dtype, op, block.slice(at, n)))
        finally:
            for event in arrived:
                event.close()
        for operation, handle, (at, n) in zip(chunks, handles, places):
            yield operation
            self._world.synchronize(handle)
            self.back.copy(address + at, host + at, n)

    def _reduce(self, operation: Operation, name: str, dtype: str, op: int, part: Block) -> int:
        count = part.nbytes // itemsize(dtype)
        operation.request(
            constants.ALLREDUCE, name, DTYPES[dtype], (count,), part, True, keep=True, op=op
        )
        return operation.launch(lambda _: None)

    def _pin(self, region: Region) -> None:
        """Let the device read and write a region by itself; where it cannot, the driver copies."""
        if region.release is not None:  # this or torch's copies have asked before
            return
        address = region.address
        try:
            self._device.pin(address, region.size)
        except Failed:
            region.release = lambda: None
            return

        region.release = lambda: self._device.unpin(address)  # no copy outlasts reduce()
