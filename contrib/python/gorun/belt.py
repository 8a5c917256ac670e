"""The belt: shared memory over which ranks of a host pass large tensors from their own memory, part by part.

"The belt" in worker/session/codec/PROTOCOL.md says what is where. Each rank copies there what the others
reduce, reduces its own share, and copies the shares of the others. Nothing here knows how to add.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Callable, Protocol

from .errors import Aborted
from .slot_table import (
    BELT,
    BELT_AREA,
    BELT_BUFFERS,
    BELT_DEPTH,
    BELT_FAILED,
    BELT_FILLED,
    BELT_LEFT,
    BELT_PART,
    BELT_REDUCED,
    BELT_RESULTS,
    BELT_SHARE,
    LINE,
    RANK_LEFT,
)


class Load(Protocol):
    """A tensor that goes over the belt. Positions are in bytes; the length of memory is what is copied."""

    nbytes: int

    def put(self, at: int, memory: memoryview) -> None:
        """Copy the source, from a position on, to memory."""

    def reduce(self, at: int, inputs: Sequence[memoryview | None], memory: memoryview) -> None:
        """Reduce the inputs into the target and memory. None among them means the source."""

    def get(self, at: int, memory: memoryview) -> None:
        """Copy memory to the target from a position on."""


class _Part:
    """A part of a tensor, and the bounds of the share of it that each rank reduces."""

    def __init__(self, number: int, at: int, nbytes: int, ranks: int) -> None:
        self.number, self.at = number, at
        size = (-(-nbytes // ranks) + LINE - 1) // LINE * LINE
        self.shares = [(min(r * size, nbytes), min((r + 1) * size, nbytes)) for r in range(ranks)]


class Belt:
    """The belt of a session. wait and publish belong to its slots; one thread at a time carries."""

    def __init__(
        self,
        memory: memoryview,
        ranks: int,
        me: int,
        wait: Callable[[int, int, Callable[[], bool]], bool],
        publish: Callable[[int, int], None],
    ) -> None:
        self._memory, self._ranks, self._me = memory, ranks, me
        self._others = [r for r in range(ranks) if r != me]
        self._words, self._flags = memory.cast("Q"), memory.cast("I")
        self._wait, self._publish = wait, publish
        self._parts = 0  # how many have gone over it
        self.busy = threading.Lock()  # held by the thread that is in a slot on the belt
        self.closed = False  # True once a rank has given up in the middle of a tensor: the belt is closed

    @staticmethod
    def fits(memory: memoryview, ranks: int) -> bool:
        """Report whether the memory of slots has a belt."""
        return len(memory) >= BELT + ranks * BELT_AREA

    def _count(self, rank: int, which: int) -> int:
        return (BELT + rank * BELT_AREA + which) // 8

    def _broken(self, rank: int) -> int:
        return (BELT + rank * BELT_AREA) // 4

    def _buffer(self, rank: int, part: _Part, lo: int, hi: int) -> memoryview:
        at = BELT + rank * BELT_AREA + BELT_BUFFERS + part.number % BELT_DEPTH * BELT_PART
        return self._memory[at + lo : at + hi]

    def _result(self, rank: int, part: _Part) -> memoryview:
        at = BELT + rank * BELT_AREA + BELT_RESULTS + part.number % BELT_DEPTH * BELT_SHARE
        lo, hi = part.shares[rank]
        return self._memory[at : at + hi - lo]

    def _parted(self, rank: int, goal: int) -> bool:
        """Report whether a rank will never reach so many parts."""
        gone = self._flags[self._broken(rank)] or self._flags[LINE * rank // 4] == RANK_LEFT
        return bool(gone) and self._words[self._count(rank, BELT_REDUCED)] < goal

    def _await(self, name: str, which: int, part: _Part) -> None:
        """Wait until all ranks have filled, or reduced, a part."""
        goal = part.number + 1
        for rank in self._others:
            at = self._count(rank, which)
            if self._words[at] < goal and not self._wait(
                at, goal, lambda: any(self._parted(r, goal) for r in self._others)
            ):
                parted = [r for r in self._others if self._parted(r, goal)]
                who = [r for r in parted if self._flags[self._broken(r)] != BELT_FAILED] or parted
                ranks = ", ".join(map(str, who))
                text = f"rank {ranks} of this host ended in the middle of it, and the tensor holds no result"
                raise Aborted(f"{name.replace('.', ' ', 1)}: {text}")

    def carry(self, name: str, load: Load) -> None:
        """Reduce a tensor with the tensors of the others, which have come to the slot. The caller holds busy.

        Three parts are under way: while this rank fills one, the others have filled the part before, and
        reduced the one before that.
        """
        me, parts = self._me, []
        for at in range(0, load.nbytes, BELT_PART):
            nbytes = min(BELT_PART, load.nbytes - at)
            parts.append(_Part(self._parts + len(parts), at, nbytes, self._ranks))
        filled, reduced = self._count(me, BELT_FILLED), self._count(me, BELT_REDUCED)
        for i in range(len(parts) + 2):
            if i < len(parts):
                part = parts[i]
                for rank in self._others:
                    lo, hi = part.shares[rank]
                    if lo < hi:
                        load.put(part.at + lo, self._buffer(me, part, lo, hi))
                self._publish(filled, part.number + 1)
            if 1 <= i <= len(parts):
                part = parts[i - 1]
                self._await(name, BELT_FILLED, part)
                lo, hi = part.shares[me]
                if lo < hi:
                    inputs = [None if r == me else self._buffer(r, part, lo, hi) for r in range(self._ranks)]
                    load.reduce(part.at + lo, inputs, self._result(me, part))
                self._publish(reduced, part.number + 1)
            if i >= 2:
                part = parts[i - 2]
                self._await(name, BELT_REDUCED, part)
                for rank in self._others:
                    lo, hi = part.shares[rank]
                    if lo < hi:
                        load.get(part.at + lo, self._result(rank, part))
        self._parts += len(parts)

    def stop(self, error: BaseException) -> None:
        """Close the belt for good: this rank gave up in the middle of a tensor, because of that error."""
        self.closed = True
        self._flags[self._broken(self._me)] = BELT_FAILED if isinstance(error, Aborted) else BELT_LEFT
        self._publish(0, -1)
