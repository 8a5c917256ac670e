"""Slots: shared memory in which the ranks of a host reduce small tensors without the daemon.

"Slots" in worker/session/codec/PROTOCOL.md describes the layout, and why all ranks come to the same decision.
Larger tensors go over a belt (belt.py), once the ranks have met in the slot of the name.
The arithmetic is the framework's, on the memory of Slot.inputs.
"""

from __future__ import annotations

import math
import os
import platform
import select
import socket
import sys
import threading
import time
from typing import Any, Callable

from .belt import Belt, Load
from .constants import AVERAGE, FLOAT32, FLOAT64, INT32, INT64, SUM, UINT32, UINT64
from .counters import counters
from .slot_table import (
    LINE,
    MAX_BELT_BYTES,
    MAX_DOORBELL,
    MAX_SLOT_BYTES,
    MAX_SLOTS,
    ON_BELT,
    RANK_LEFT,
    WORLD_GONE,
)

MAX_CLOSED = 16  # slots of one name, when different tensors come under it: each takes memory for good

# How long a rank polls before it sleeps; a wake-up takes about as long. It yields the CPU in the second part
# of that time, and in the first too if ranks outnumber CPUs.
SPIN_SECONDS = 50e-6
YIELD_SECONDS = 200e-6
LOOK_SECONDS = 0.5  # of a sleep, before a rank looks whether its time is over
JOIN_SECONDS = 100e-6  # between two looks whether other threads are still in a slot

_SUMS = frozenset((FLOAT32, FLOAT64, INT32, UINT32, INT64, UINT64))
_AVERAGES = frozenset((FLOAT32, FLOAT64))


def possible() -> bool:
    """Report whether Python can use slots: others must see its stores in order, which it cannot demand."""
    return platform.machine() in ("x86_64", "AMD64") and sys.byteorder == "little"


def suits(dtype: int, op: int, prescale: float, postscale: float) -> bool:
    """Report whether slots suit such a reduction."""
    types = _AVERAGES if op == AVERAGE else _SUMS if op == SUM else frozenset()
    return dtype in types and prescale == postscale == 1.0


class Slot:
    """The slot of one name: one tensor, one reduction."""

    __slots__ = (
        "arithmetic", "belt", "dtype", "inputs", "mine", "op", "own", "ranks", "shape", "signature", "use",
    )  # fmt: skip

    def __init__(
        self, memory: memoryview, offset: int, ranks: int, me: int, dtype: int, op: int,
        shape: tuple[int, ...], nbytes: int, signature: int = 0,
    ) -> None:  # fmt: skip
        """Raise ValueError if the slot is not within the memory."""
        self.belt = offset & ON_BELT != 0
        if self.belt:
            offset, nbytes = offset & ~ON_BELT, 0
        self.signature = signature  # of the tensors that are packed into this one
        stride = (nbytes + LINE - 1) // LINE * LINE
        if offset % LINE or offset < LINE * ranks or offset + ranks * (LINE + 2 * stride) > len(memory):
            raise ValueError(f"slot at {offset} of {len(memory)} bytes")
        self.dtype, self.op, self.shape = dtype, op, shape
        self.use = 0
        self.mine = (offset + LINE * me) // 8  # place of this rank's word
        # Where the word of every other rank is, and the flag that it has left.
        self.ranks = [((offset + LINE * r) // 8, LINE * r // 4) for r in range(ranks) if r != me]
        starts = [offset + LINE * ranks + i * stride for i in range(2 * ranks)]
        self.inputs = [[memory[at : at + nbytes] for at in starts[half::2]] for half in (0, 1)]
        self.own = [half[me] for half in self.inputs]
        self.arithmetic: Any = None  # of the framework


class Slots:
    """All slots of a session. look() reads what the daemon has sent. Thread-safe."""

    def __init__(
        self,
        memory: memoryview,
        ranks: int,
        me: int,
        daemon: int,
        look: Callable[[], None],
    ) -> None:
        self._memory, self._ranks, self._me = memory, ranks, me
        self._words = memory.cast("Q")
        self._flags = memory.cast("I")
        self._look = look
        # It guards what follows, which slots are open, and this rank's words in them. To take it, or to
        # release it, also makes stores visible before the next load.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sleepers: set[int] = set()  # threads
        self._inside: set[int] = set()  # threads
        self._listener = 0  # the thread that waits at the doorbell for all of them
        self._doorbell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._doorbell.setblocking(False)
        self._doorbell.bind("")  # the kernel chooses a name
        self._name: bytes = self._doorbell.getsockname()
        self._poll = select.poll()
        self._poll.register(self._doorbell, select.POLLIN)
        self._poll.register(daemon, select.POLLIN)
        line = LINE * me
        self._over = line // 4  # where the flag is that the world has ended
        memory[line + 9 : line + 9 + len(self._name)] = self._name
        memory[line + 8] = len(self._name)
        self._asleep = [(r, LINE * r // 4 + 1) for r in range(ranks) if r != me]
        self._yields = ranks > len(os.sched_getaffinity(0))
        self.belt: Belt | None = None
        if Belt.fits(memory, ranks):
            self.belt = Belt(memory, ranks, me, self._await, self._publish)
        self._open: dict[str, Slot] = {}
        self._closed: dict[str, int] = {}  # by name: its slots that a rank did not come to
        self.off = False
        self._ended = False

    def offers_belt(self, nbytes: int) -> bool:
        """Report whether the slot of a tensor would be on the belt."""
        return self.belt is not None and not self.belt.closed and MAX_SLOT_BYTES < nbytes <= MAX_BELT_BYTES

    def offers(self, name: str) -> bool:
        """Report whether this rank would take a slot for the next use of a name."""
        closed = self._closed.get(name, 0)
        return not self.off and closed < MAX_CLOSED and len(self._open) + len(self._closed) < MAX_SLOTS

    def open(
        self, name: str, offset: int, dtype: int, op: int, shape: tuple[int, ...], nbytes: int,
        signature: int = 0,
    ) -> None:  # fmt: skip
        """Take the slot that the daemon assigned to a name. op: the reduction, and how it travels."""
        if self.off:  # the daemon may have assigned it before this rank joined
            return
        self._open[name] = Slot(
            self._memory, offset, self._ranks, self._me, dtype, op, shape, nbytes, signature
        )

    def find(self, name: str, op: int) -> Slot | None:
        """Return the slot of a name if it has that reduction."""
        slot = self._open.get(name)
        return slot if slot is not None and slot.op == op else None

    def enter(self) -> None:
        """Make a join in another thread wait until leave(), so that what happens here comes before it."""
        self._inside.add(threading.get_ident())

    def leave(self) -> None:
        """Undo enter(); without it, do nothing."""
        self._inside.discard(threading.get_ident())

    def half(self, slot: Slot) -> int:
        """Return which half of the inputs the next use takes; meet() begins it."""
        return (slot.use + 1) & 1

    def meet(self, name: str, slot: Slot, mark: int = 0, seconds: float = math.inf) -> bool:
        """Publish this rank's input and wait for all others. If one does not come, close the slot: False.

        On the belt, also close it if they come with different marks. Raise TimeoutError if they do not come
        within so many seconds.
        """
        try:
            with self._lock:  # or another thread may close the slot meanwhile, and publish that
                if self._open.get(name) is not slot:
                    return False
                slot.use += 1
                if slot.belt:
                    self._words[slot.mine + 1] = mark
                goal = self._words[slot.mine] = 2 * slot.use
            self._rouse(slot, goal)
            return self._wait(name, slot, goal, seconds)
        except BaseException:  # interrupted: others must not wait here for this rank, nor it for them
            self.close(name)
            raise

    def carry(self, name: str, slot: Slot, load: Load, mark: int = 0, seconds: float = math.inf) -> bool:
        """Meet the others and reduce a tensor with theirs. If one does not come, close the slot: False."""
        belt = self.belt
        if belt is None:  # the session has just ended
            return False
        if belt.closed or not belt.busy.acquire(blocking=False):  # another thread has the belt
            self.close(name)
            return False
        try:
            if not self.meet(name, slot, mark, seconds):
                return False
            began = counters.waits()
            try:
                belt.carry(name, load)
            finally:
                counters.moved(began)
            return True
        except BaseException as error:
            belt.stop(error)
            raise
        finally:
            belt.busy.release()

    def _publish(self, at: int, count: int) -> None:
        """Write a count of the belt, if it is not negative, and wake the ranks that sleep."""
        with self._lock:
            if count >= 0:
                self._words[at] = count
        for rank, flag in self._asleep:
            if self._flags[flag]:
                self._ring(rank)

    def _wait(self, name: str, slot: Slot, goal: int, seconds: float) -> bool:
        words, came = self._words, True
        late = [at for at, _ in slot.ranks if words[at] < goal]
        if late:
            until = time.monotonic() + seconds

            def absent() -> bool:
                if time.monotonic() > until:
                    raise TimeoutError
                return self._absent(slot, goal)

            began = counters.waits()
            try:
                came = all(self._await(at, goal, absent) for at in late) and self._agreed(slot)
            finally:
                if came:
                    counters.waited(began, 0)
                else:
                    counters.missed(began)
        elif slot.belt:
            came = self._agreed(slot)
            if came:
                counters.ran(0)
        if not came:
            with self._lock:
                if self._open.get(name) is slot:
                    self._forget(name)
            return False
        # Look at this last. A rank that comes after the end of the world finds its mark; the operation may
        # have failed on others.
        while self._flags[self._over] == WORLD_GONE:
            self._look()  # which raises the reason, once the daemon has sent it
            os.sched_yield()
        return True

    def _agreed(self, slot: Slot) -> bool:
        """Report whether all ranks, which have come, have brought the same mark."""
        words = self._words
        return not slot.belt or all(words[at + 1] == words[slot.mine + 1] for at, _ in slot.ranks)

    def close(self, name: str) -> None:
        """Leave a slot for good, because something else is submitted under its name."""
        if name not in self._open:
            return
        with self._lock:
            slot = self._forget(name)
            if slot is not None:
                self._words[slot.mine] = 2 * slot.use + 1
        if slot is not None:
            self._rouse(slot, 0)

    def _forget(self, name: str) -> Slot | None:
        slot = self._open.pop(name, None)
        if slot is not None:
            self._closed[name] = self._closed.get(name, 0) + 1
        return slot

    def turn_off(self) -> None:
        """Come to no slot any more."""
        self.off = True
        for name in list(self._open):
            self.close(name)
        while self._inside - {threading.get_ident()}:  # what these threads do comes before the join
            time.sleep(JOIN_SECONDS)

    def end(self) -> None:
        """End all slots, without the other ranks: the session has ended."""
        self.off = self._ended = True
        self._open.clear()
        self.belt = None  # it refers to this object: the memory would stay until a garbage collection
        self.ring()
        with self._lock:
            if not self._listener:
                self._doorbell.close()

    def ring(self) -> None:
        """Make the threads of this rank that sleep look again."""
        self._send(self._name)

    def _send(self, name: bytes) -> None:
        try:
            self._doorbell.sendto(b"", name)
        except OSError:
            pass  # the doorbell is full, or its rank is gone

    def _rouse(self, slot: Slot, goal: int) -> None:
        """Wake the ranks that sleep if all have reached goal. This rank's word was written under the lock."""
        words, flags = self._words, self._flags
        for at, _ in slot.ranks:
            if words[at] < goal:
                return  # the last rank to come wakes them
        for rank, at in self._asleep:
            if flags[at]:
                self._ring(rank)

    def _ring(self, rank: int) -> None:
        line = LINE * rank
        length = min(self._memory[line + 8], MAX_DOORBELL)
        self._send(bytes(self._memory[line + 9 : line + 9 + length]))

    def _absent(self, slot: Slot, goal: int) -> bool:
        """Report whether a rank will never come: its word is odd, or it has left.

        Look at all ranks, even if one is missing: the last to come wakes no others if one will never come.
        """
        words = self._words
        for at, left in slot.ranks:
            word = words[at]
            if word < goal and (word & 1 or (self._flags[left] == RANK_LEFT and words[at] < goal)):
                return True  # it had not come before it left
        return False

    def _await(self, at: int, goal: int, absent: Callable[[], bool]) -> bool:
        """Wait until the word at a place reaches goal, or a rank is absent: False."""
        words, since, yields = self._words, 0.0, self._yields
        while True:
            if self._flags[self._over] == WORLD_GONE or self._ended:
                self._look()  # which raises the reason, once the daemon has sent it
                os.sched_yield()
                continue
            for _ in range(1 if yields else 50):
                if words[at] >= goal:
                    return True
            if absent():
                return False
            if yields:
                os.sched_yield()
            now = time.perf_counter()
            if not since:
                since = now
            elif now - since >= YIELD_SECONDS:
                self._look()  # nothing rings twice for a session that has failed
                self._doze(at, goal, absent)
            elif now - since >= SPIN_SECONDS:
                yields = True

    def _doze(self, at: int, goal: int, absent: Callable[[], bool]) -> None:
        """Sleep until something has happened."""
        flag, me = LINE * self._me // 4 + 1, threading.get_ident()
        try:
            with self._lock:
                self._sleepers.add(me)
                self._flags[flag] = 1
            with self._lock:
                # Look after the flag is set, while no other thread can take a ring away.
                if self._words[at] >= goal or absent():
                    return
                if self._listener not in (0, me):
                    self._changed.wait(LOOK_SECONDS)
                    return
                self._listener = me
            self._listen()
        finally:  # after Ctrl-C too: this rank may wait again
            with self._lock:
                if self._listener == me:
                    self._listener = 0
                    self._changed.notify_all()
                self._sleepers.discard(me)
                if not self._sleepers:
                    self._flags[flag] = 0

    def _listen(self) -> None:
        """Wait for the doorbell or a message of the daemon, for all threads that sleep."""
        try:
            ready = [fd for fd, _ in self._poll.poll(1000 * LOOK_SECONDS)]
            if self._doorbell.fileno() in ready:
                self._doorbell.recv(1)
            self._look()
        except BlockingIOError:
            pass
