"""Memory shared with the daemon of the host: a few large regions, cut into blocks.

An arena only ever takes regions; it gives one back when a request does not fit and the region is
empty. Regions are sparse: a page that was never written costs nothing.
"""

from __future__ import annotations

import bisect
import mmap
import threading
from collections import deque
from collections.abc import Sequence
from typing import Callable

ALIGNMENT = 64  # a cache line, and the widest vector register
FIRST_REGION = 64 << 20
GRANULE = 2 << 20  # the daemon rounds region sizes up to this

# Freed blocks of one size wait for the next block of that size: a training step allocates what the
# step before it freed. This many are kept per size, the rest is merged at once.
_CACHED_PER_SIZE = 64


class Region:
    """One piece of shared memory, as the daemon numbers it."""

    def __init__(self, number: int, memory: mmap.mmap) -> None:
        self.number = number
        self.size = len(memory)
        self.view = memoryview(memory)
        self.release: Callable[[], object] | None = None  # called before the memory is unmapped
        self._memory = memory

    def close(self) -> None:
        """Unmap the region, or leave that to the last array that still refers to it."""
        release, self.release = self.release, None
        if release is not None:
            release()
        self.view.release()
        try:
            self._memory.close()
        except BufferError:
            pass


class Block:
    """A piece of arena memory.

    ``view`` is its memory, writable bytes. ``free`` gives it back: nothing may use the view, and no
    operation may be in flight on it, after that.
    """

    __slots__ = ("_arena", "nbytes", "offset", "region", "view")

    def __init__(self, arena: Arena, region: Region, offset: int, nbytes: int) -> None:
        self.region = region.number
        self.offset = offset
        self.nbytes = nbytes
        self.view = region.view[offset : offset + nbytes]
        self._arena: Arena | None = arena

    def slice(self, offset: int, nbytes: int) -> Block:
        """Return a part of the block as a block of its own, which free() ignores."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"slice block: [{offset}, {offset + nbytes}) of {self.nbytes} bytes")
        part = Block.__new__(Block)
        part.region = self.region
        part.offset = self.offset + offset
        part.nbytes = nbytes
        part.view = self.view[offset : offset + nbytes]
        part._arena = None
        return part

    def home(self) -> Region:
        """Return the region of the block, which must not be free."""
        if self._arena is None:
            raise ValueError("the block is free, or a part of another")
        return self._arena.region(self.region)

    def free(self) -> None:
        """Return the memory to the arena. A second call does nothing."""
        arena, self._arena = self._arena, None
        if arena is not None:
            # Only an append, without a lock: a garbage collection may run this in the middle of alloc.
            arena.freed.append((self.region, self.offset, _rounded(self.nbytes)))


def _rounded(nbytes: int) -> int:
    return max(ALIGNMENT, (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)


class Arena:
    """Allocates blocks by best fit, merges free neighbours, and grows by ever larger regions.

    ``grow`` returns a new region of at least that many bytes or raises; ``shrink`` takes one back.
    Thread-safe. What a KeyboardInterrupt cuts short loses the piece of memory it was at, at most.
    """

    def __init__(self, grow: Callable[[int], Region], shrink: Callable[[Region], None]) -> None:
        self.freed: deque[tuple[int, int, int]] = deque()  # (region, offset, size) given back by blocks
        self._grow = grow
        self._shrink = shrink
        self._lock = threading.Lock()
        self._regions: dict[int, Region] = {}
        self._cache: dict[int, list[tuple[int, int]]] = {}  # size → [(region, offset)]
        self._starts: dict[tuple[int, int], int] = {}  # what is free: (region, first byte) → size
        self._free: list[tuple[int, int, int]] = []  # the same as (size, region, offset), sorted
        self._ends: dict[tuple[int, int], int] = {}  # the same: (region, end) → size
        self._torn = False  # the last two may not be: a change is under way, or was cut short

    @property
    def capacity(self) -> int:
        """Bytes of all regions."""
        return sum(r.size for r in self._regions.values())

    def region(self, number: int) -> Region:
        """Return a region that blocks lie in."""
        return self._regions[number]

    def alloc(self, nbytes: int) -> Block:
        """Return a block of nbytes, its contents undefined."""
        if nbytes < 0:
            raise ValueError(f"allocate memory: negative size {nbytes}")
        size = _rounded(nbytes)
        with self._lock:
            if self._torn:
                self._mend()
            self._reclaim()
            cached = self._cache.get(size)
            if cached:
                region, offset = cached.pop()
            else:
                region, offset = self._carve(size)
            return Block(self, self._regions[region], offset, nbytes)

    def _reclaim(self) -> None:
        while self.freed:
            region, offset, size = self.freed.popleft()
            cached = self._cache.setdefault(size, [])
            if len(cached) < _CACHED_PER_SIZE:
                cached.append((region, offset))
            else:
                self._insert(region, offset, size)

    def _carve(self, size: int) -> tuple[int, int]:
        found = self._best_fit(size)
        if found is None:
            self._uncache()
            found = self._best_fit(size)
        if found is None:
            self._extend(size)
            found = self._best_fit(size)
            assert found is not None
        have, region, offset = found
        rest = (region, offset + size, have - size) if have > size else None
        self._replace([(region, offset, have)], rest)
        return region, offset

    def _best_fit(self, size: int) -> tuple[int, int, int] | None:
        i = bisect.bisect_left(self._free, (size, -1, -1))
        return self._free[i] if i < len(self._free) else None

    def _uncache(self) -> None:
        for size, blocks in self._cache.items():
            while blocks:
                region, offset = blocks.pop()
                self._insert(region, offset, size)
        self._cache.clear()

    def _extend(self, size: int) -> None:
        """Map a region that holds size bytes. If growth is refused, map a smaller one or make room first."""
        want = max(size, FIRST_REGION, self.capacity)
        try:
            region = self._grow(want)
        except MemoryError:
            self._trim()
            region = self._grow(max(size, GRANULE))
        self._regions[region.number] = region
        self._insert(region.number, 0, region.size)

    def _trim(self) -> None:
        for number, region in list(self._regions.items()):
            if self._starts.get((number, 0)) == region.size:
                self._replace([(number, 0, region.size)], None)
                del self._regions[number]
                self._shrink(region)

    def _insert(self, region: int, offset: int, size: int) -> None:
        """Free a piece, and merge it with its free neighbours."""
        neighbours = []
        before = self._ends.get((region, offset))
        if before is not None:
            offset -= before
            size += before
            neighbours.append((region, offset, before))
        after = self._starts.get((region, offset + size))
        if after is not None:
            neighbours.append((region, offset + size, after))
            size += after
        self._replace(neighbours, (region, offset, size))

    def _replace(self, old: Sequence[tuple[int, int, int]], new: tuple[int, int, int] | None) -> None:
        """Replace free pieces by one, or by none."""
        self._torn = True
        for region, offset, _ in old:
            del self._starts[region, offset]
        if new is not None:
            self._starts[new[:2]] = new[2]
        for region, offset, size in old:
            del self._ends[region, offset + size]
            del self._free[bisect.bisect_left(self._free, (size, region, offset))]
        if new is not None:
            region, offset, size = new
            self._ends[region, offset + size] = size
            bisect.insort(self._free, (size, region, offset))
        self._torn = False

    def _mend(self) -> None:
        """Rebuild the last two indexes from the first."""
        self._ends = {(region, offset + size): size for (region, offset), size in self._starts.items()}
        self._free = sorted((size, region, offset) for (region, offset), size in self._starts.items())
        self._torn = False

    def close(self) -> None:
        """Unmap all regions; arrays that still refer to one keep it until they are gone."""
        with self._lock:
            regions = list(self._regions.values())
            self._regions.clear()
            self._cache.clear()
            self._free.clear()
            self._starts.clear()
            self._ends.clear()
            self.freed.clear()
        for region in regions:
            region.close()
