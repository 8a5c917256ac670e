"""Operations on memory of GPUs that all ranks call, in any order: what the paths have in common.

An operation begins with a small sum of gorun under its own name, which ends once all ranks have called it and
finds ranks that called something else. A thread of the group does the rest. docs/decisions/0059 says why.
"""

from __future__ import annotations

import array
import hashlib
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gorun import constants, errors
from gorun.exceptions import HorovodInternalError
from gorun.gpu.driver import Device, Event, Failed
from gorun.world import DUPLICATE, Operation

if TYPE_CHECKING:
    from gorun.world import World

CLOSE_SECONDS = 1.0  # what runs may still take once this rank leaves
ORDER_SECONDS = 0.002  # at most, between two looks at what waits for other ranks
PAUSE, LONGEST_PAUSE = 20e-6, 1e-3  # between two looks of a caller at the end of its operation
LEAVING = "it did not end when this rank left the world"


class Lost(Exception):
    """The communicator cannot go on."""


class Work:
    """An operation. Its memory belongs to it until wait() has returned."""

    def __init__(
        self, group: Calls, key: str, launch: Callable[[int, int], None] | None = None,
        then: Callable[[int], None] | None = None, by_host: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.key = key
        self.number = number_of(key)
        self._group = group
        self._launch = launch  # has NCCL do it, by communicator and stream
        self.then = then  # gives the stream what follows
        self.handle = -1  # of the operation by the host that takes its place
        self._by_host = by_host
        self.before, self.after = Event(group.device), Event(group.device)
        self.since = 0.0  # when it was launched
        self.waited = False  # its end was seen, by wait() or over(): its name is free
        self._decided = threading.Event()  # it was launched, or will not be
        self._here = False  # by this group
        self._error = ""
        weakref.finalize(self, _close, self.before, self.after).atexit = False

    @property
    def here(self) -> bool:
        """Report whether the group has given it to the GPU."""
        return self._here

    def over(self) -> bool:
        """Report whether wait() would return, or raise, at once."""
        if self._decided.is_set() and (not self._here or self._group.ended() or self.after.over()):
            self.waited = True
        return self.waited

    def wait(self) -> bool:
        """Return True once the memory of the GPU has the result, False if the host carries it out.

        False means that a rank has joined, or has a size that NCCL cannot take. The group then did nothing on
        any rank, and the operation that by_host started takes its place. Raises HorovodInternalError if the
        operation failed; the memory then holds anything.
        """
        self._decided.wait()
        pause = PAUSE
        try:
            while not self.over():
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        except Failed as error:  # of the device
            self.waited = True
            raise HorovodInternalError(f"{self.key} on the GPU: {error}") from error
        # An abort ends what runs, so the reason is looked at last.
        if self._error or (self._here and self._group.failure):
            raise HorovodInternalError(f"{self.key} on the GPU: {self._error or self._group.failure}")
        return self._here

    def launch(self, comm: int, stream: int) -> None:
        """Have NCCL do it."""
        assert self._launch is not None
        self._launch(comm, stream)

    def launched(self) -> None:
        """Note that the group has given all of it to the GPU."""
        self.since = time.monotonic()
        self._here = True
        self._decided.set()

    def left_to_host(self) -> None:
        """Start the host's operation now: other ranks may wait for it before they wait for others."""
        try:
            if self._by_host is not None:
                self.before.synchronize()
                self.handle = self._by_host()
        except Exception as error:
            self._error = str(error)
        self._decided.set()

    def fail(self, error: str) -> None:
        """Note why it will not happen."""
        self._error = error
        self._decided.set()


Call = tuple[Work, Operation, int]  # with the sum that asks all ranks for it


class Names:
    """The operations of a path by their names, which no other one may have until the end was seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def take(self, name: str, operation: Any) -> None:
        """Give an operation a name; ValueError if another one has it, whose field waited is not set."""
        with self._lock:
            other = self._taken.get(name)
            if other is not None and not other.waited:
                raise ValueError(DUPLICATE)
            self._taken[name] = operation


class Calls:
    """All ranks of a world, each with its own device. Every rank makes one; any thread may use it."""

    def __init__(self, world: World, device: Device) -> None:
        self.device = device
        self.failure = ""  # why nothing happens any more
        self._world = world
        self._changed = threading.Condition()  # of the fields below
        self._called: list[Call] = []
        self.names = Names()
        self._closing = False
        self._ended = threading.Event()

    def serve(self) -> None:
        """Start the thread, once everything else is there."""
        self._thread = threading.Thread(target=self._serve, name="gorun gpu", daemon=True)
        self._thread.start()
        self._world.on_close(self.close)

    def ended(self) -> bool:
        """Report whether the group has ended: nothing of it uses memory any more."""
        return self._ended.is_set()

    def close(self) -> None:
        """End the group: what runs has a second to end, what has not begun does not happen."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def begin(self, work: Work, how: tuple[object, ...], stream: int, balance: Sequence[int] = ()) -> None:
        """Start the sum that asks all ranks for an operation, which comes after those of a stream.

        how must be equal on all ranks. balance are numbers that are added up for the answer.
        """
        key = work.key
        operation = Operation(self._world, 0)
        try:
            work.before.record(stream)
            handle = self._ask(operation, key, how, balance)
            with self._changed:
                self._refuse()
                self._called.append((work, operation, handle))
                self._changed.notify_all()
        except BaseException as error:
            work.waited = True
            if operation.begun() and not isinstance(error, HorovodInternalError):
                self._stop(f"{key} was interrupted while it was called")  # other ranks may count on it
            raise

    def check(self, key: str, stream: int) -> None:
        """Raise why an operation cannot be called after those of a stream."""
        self._refuse()
        with self.device.current():
            captured = self.device.driver.capturing(stream)
        if captured:
            raise RuntimeError(
                f"{key}: the stream is being captured into a CUDA graph, which operations of gorun cannot be "
                "part of: call them outside of the graph"
            )

    def _refuse(self) -> None:
        if self.failure or self._closing:
            raise HorovodInternalError(f"the group of the GPUs has ended: {self.failure or 'it is closed'}")

    def _ask(
        self, operation: Operation, key: str, how: tuple[object, ...], balance: Sequence[int]
    ) -> int:
        """Start the sum by which ranks learn that all have called an operation: of a one for each rank.

        Its value is that sum, and those of balance. It has the name that the operation would
        have on the path by the host: a rank that takes that path gets an error, as do all others.
        """
        numbers = array.array("q", [1, *balance])
        block = self._world.alloc(8 * len(numbers))
        block.view[:] = numbers.tobytes()
        signature = zlib.crc32(repr((key, how)).encode()) & 0x7FFFFFFF
        operation.explain(signature, [(str(how[0]), [count for count in how[1:2] if isinstance(count, int)])])
        operation.request(
            constants.ALLREDUCE, key, constants.INT64, (len(numbers),), block, True, op=constants.SUM,
            root=signature,
        )  # fmt: skip

        return operation.launch(lambda _: array.array("q", bytes(block.view)).tolist())

    # The thread.

    def _serve(self) -> None:
        try:
            self.device.driver.relax()  # a look at an event would end a capture of the script's
            with self.device.current():
                try:
                    self._loop()
                    self._drain()
                except Exception as error:
                    self._stop(str(error))
                self._end()
        except Exception as error:
            self._stop(str(error))
        self._ended.set()
        self._stop("this rank has left the world")

    def _stop(self, reason: str) -> None:
        """Fail what is under way, and what is called from now on. Only the first reason counts."""
        with self._changed:
            self.failure = self.failure or reason
            self._closing = True
            called, self._called = self._called, []
            self._changed.notify_all()
        for work, _, _ in called:
            work.fail(self.failure)
        if threading.current_thread() is self._thread:
            for work in self._undecided():
                work.fail(self.failure)

    def _answer(self, called: Sequence[Call]) -> None:
        """Act on the sums that have ended."""
        for entry in called:
            work, operation, handle = entry
            if not operation.over():
                continue
            with self._changed:
                if entry not in self._called:
                    return  # interrupted
                self._called.remove(entry)
            try:
                sums = self._world.synchronize(handle)
            except (errors.GorunError, HorovodInternalError, ValueError) as error:
                work.fail(str(error))
                continue
            self._answered(work, sums)

    def _wait_for_calls(self, seconds: float | None) -> list[Call] | None:
        """Return what was called; if there is nothing, wait so long for it. None: the group closes."""
        with self._changed:
            if not self._called and not self._closing and seconds != 0:
                self._changed.wait(seconds)
            return None if self._closing else list(self._called)

    # What a group does in its own way.

    def _loop(self) -> None:
        """Serve calls until the group closes; raise why it cannot."""
        raise NotImplementedError

    def _answered(self, work: Work, sums: list[int]) -> None:
        """Act on the sums of all ranks for an operation: of ones, and of balance."""
        raise NotImplementedError

    def _drain(self) -> None:
        """Wait for what runs when this rank leaves."""
        raise NotImplementedError

    def _end(self) -> None:
        """Let go of everything. The reason is set before."""
        raise NotImplementedError

    def _undecided(self) -> Iterable[Work]:
        """Return what was answered and not launched."""
        raise NotImplementedError


def number_of(key: str) -> int:
    """Return a number for an operation, which is in flight once at most; 1 or more."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=7).digest(), "little") + 1


def itemsize(dtype: str) -> int:
    """Return the bytes of an element."""
    return 2 if dtype == "bfloat16" else int(dtype.strip("uintfloa")) // 8


def _close(*events: Event) -> None:
    for event in events:
        event.close()
