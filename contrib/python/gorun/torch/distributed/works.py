"""Operations under way, as torch.distributed returns them."""

from __future__ import annotations

import atexit
import collections
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import distributed as dist

from gorun.counters import counters
from gorun.gpu import driver

if TYPE_CHECKING:
    from gorun.world import World

WORKS = 256  # kept for C++
FULL_WORKS = 8  # whose futures it may still ask for
_CPU = torch.device("cpu")
_FIRST_PAUSE, _LAST_PAUSE = 50e-6, 5e-3  # seconds between two checks for a sender


class Limit:
    """The time limit for operations of a group, and the error of the first that took longer.

    After that the ranks are out of step: some have its result and others do not.
    """

    def __init__(self, timeout: timedelta | None) -> None:
        self.seconds = timeout.total_seconds() if timeout else float("inf")
        self.exceeded = ""

    def check(self) -> None:
        """Raise RuntimeError if an operation took too long."""
        if self.exceeded:
            raise RuntimeError(f"backend gorun: the group takes no more calls on this rank: {self.exceeded}")

    def left(self) -> float:
        """Return how many seconds to wait for an operation."""
        return 0.0 if self.exceeded else self.seconds

    def exceed(self, what: str) -> RuntimeError:
        """Return the error of an operation that took too long."""
        text = f"{what} timed out: not all ranks came within the group's timeout of {self.seconds:g} s"
        self.exceeded = self.exceeded or text
        return RuntimeError(f"backend gorun: {text}; the group takes no more calls on this rank")


class _Failure:
    """The result of an operation that failed, which raises its error when C++ looks for tensors in it.

    DDP does, and takes the first: if there were neither a tensor nor an error, the process would crash.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise self.error


class Future(torch.futures.Future):
    """The result of an operation. The first thread that waits for it fetches it.

    That is the group's thread or a caller of wait(). Callbacks of other futures run in the group's thread,
    and may wait too. Where the result lies on a GPU, torch orders the streams of callbacks and of waiting
    threads after that of the thread that fetched it.
    """

    cause: BaseException | None = None  # of the last failure: DDP makes another error of it

    def __init__(
        self, world: World, handle: int, result: Any, what: str, limit: Limit,
        device: torch.device = _CPU,
    ) -> None:  # fmt: skip
        super().__init__(devices=[device] if device.type == "cuda" else [])
        self.failed = False
        self.on_gpu = device.type == "cuda"
        self._claim = threading.Lock()
        self._world = world
        self._handle = handle
        self._result = result
        self._what = what
        self._limit = limit

    def set_exception(self, result: Exception) -> None:
        """End with an error."""
        failure = _Failure(result)

        def fail(_: object) -> NoReturn:
            raise result

        self._set_unwrap_func(fail)
        self.set_result(failure)

    def bring(self) -> None:
        """Wait for the operation, unless another thread does, and call the callbacks."""
        if not self._claim.acquire(blocking=False):
            return
        result, self._result = self._result, None
        try:
            self._fetch()
        except Exception as error:
            self.failed = True
            Future.cause = error.__cause__
            self.set_exception(error)
        except BaseException:  # interrupted: it can be waited for again
            self._result = result
            self._claim.release()
            raise
        else:
            self.set_result(result)

    def _fetch(self) -> None:
        if self._world.attend(self._handle, self._limit.left()):
            self._world.synchronize(self._handle)
        else:
            self._world.give_up(self._handle)
            raise self._limit.exceed(self._what)

    def arrives(self, seconds: float) -> bool:
        """Wait at most this long. Report whether the operation is over."""
        return self.done() or self._world.attend(self._handle, seconds)

    def wait(self) -> Any:
        """Return the result, or raise the operation's error."""
        self.bring()
        return super().wait() if self.done() else _resting(super().wait)


class _Nothing(Future):
    """The future of an operation that has ended, without a result."""

    def __init__(self) -> None:
        torch.futures.Future.__init__(self)
        self.failed = self.on_gpu = False
        self.set_result(None)

    def bring(self) -> None:
        """Do nothing."""


class Carried(Future):
    """The result of an allreduce that the group's thread carries out, after all that was called before."""

    def __init__(
        self, world: World, result: Any, what: str, limit: Limit, waiting: Waiting,
        carry: Callable[[float], bool], start: Callable[[], int],
    ) -> None:  # fmt: skip
        """carry does it within so many seconds, or returns False; start has the daemon do it instead."""
        super().__init__(world, -1, result, what, limit)
        self._waiting = waiting
        self._carry, self._start = carry, start
        self._over = threading.Event()

    def bring(self) -> None:
        """Carry it out, in the group's thread; do nothing in another one."""
        if self._waiting.serves():
            super().bring()
            self._over.set()

    def _fetch(self) -> None:
        carry, start = self._carry, self._start
        del self._carry, self._start  # which hold tensors
        try:
            carried = carry(self._limit.left())
        except TimeoutError:
            raise self._limit.exceed(self._what) from None
        if not carried:
            self._handle = start()
            super()._fetch()

    def wait(self) -> Any:
        """Return the result, or raise the operation's error."""
        if self._waiting.serves():  # in a callback of an earlier one
            self._waiting.finish(self)
        else:
            _resting(self._over.wait)  # which Ctrl-C can interrupt
        return super().wait()


class Waiting:
    """The operations for which the thread of a group waits, in the order of their start."""

    def __init__(self) -> None:
        self._futures: queue.SimpleQueue[Future | None] = queue.SimpleQueue()
        self._relaxed = False
        self._thread = threading.Thread(
            target=self.finish, args=(None,), name="gorun torch.distributed", daemon=True
        )
        self._thread.start()
        _threads.add(self)

    def put(self, future: Future | None) -> None:
        """Let the thread wait for an operation after those before, or end."""
        self._futures.put(future)

    def join(self) -> None:
        """End the thread, once all operations have ended."""
        self.put(None)
        self._thread.join(5)  # an operation that never ends is ended by the session

    def serves(self) -> bool:
        """Report whether the caller is the thread."""
        return threading.current_thread() is self._thread

    def finish(self, last: Future | None) -> None:
        """Wait for one operation after the other, until one has ended."""
        if self.serves():
            counters.help()
        while last is None or not last.done():
            future = self._futures.get()
            if future is None:
                self._futures.put(None)  # for the thread, if this is a callback in it
                return
            if future.on_gpu and not self._relaxed:
                driver.driver().relax()  # its looks at events would end a capture of the script's
                self._relaxed = True
            future.bring()
            del future  # it holds tensors


class Work(dist.Work):
    """An operation under way. A future reports its end; wait() raises its error."""

    def __init__(self, future: Future) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the operation has ended, or raise its error. The default timeout is the group's."""
        if timeout:
            over = threading.Event()
            self._future.add_done_callback(lambda _: over.set())
            _in_time(over.wait, timeout)
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        """Return the future of the result."""
        return self._future

    def result(self) -> Any:
        """Return the tensors when the operation has ended; Join reads them."""
        return self._future.wait()

    def is_completed(self) -> bool:
        """Report whether the operation has ended."""
        return self._future.done()

    def is_success(self) -> bool:
        """Report whether it has succeeded."""
        return self._future.done() and not self._future.failed

    def references(self) -> int:
        """Count the references to it in Python, including the call's."""
        return sys.getrefcount(self)

    def empty(self) -> None:
        """Release the tensors of an operation that has ended: C++ still waits for it, but needs no result."""
        if not self._future.failed:
            self._future = _NOTHING


class Works:
    """The works of a group for C++, which does not keep the Python part of its works alive.

    It asks for its future right away, and may wait for it later. Until then Python has no other reference to
    it, and its tensors would stay.
    """

    def __init__(self) -> None:
        self._works: collections.deque[Work] = collections.deque(maxlen=WORKS)
        self._full: collections.deque[Work] = collections.deque(maxlen=WORKS)

    def append(self, work: Work) -> None:
        """Keep a work; release the tensors of earlier ones that are over and that Python has dropped."""
        self._works.append(work)
        self._full.append(work)
        i = 0
        while i < len(self._full) - FULL_WORKS:
            if self._full[i].is_completed() and self.references(i) <= _UNUSED:
                self._full[i].empty()
                del self._full[i]
            else:
                i += 1

    def references(self, i: int) -> int:
        """Count the references to the i-th work that still has its tensors."""
        return self._full[i].references()


class Transfer(dist.Work):
    """A tensor under way between two ranks. Its own caller waits for it, since earlier ones may end later."""

    def __init__(self, future: Future, under_way: set[Transfer], source: int) -> None:
        super().__init__()
        self._future = future
        self._awaited = False  # by a thread of its own
        self._source = source
        self._under_way = under_way
        under_way.add(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the tensor has arrived, or raise why it has not. No time is the group's."""
        if timeout:
            _in_time(self._future.arrives, timeout)
        self._under_way.discard(self)
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        """Return the future of the tensor."""
        if not self._awaited:
            self._awaited = True
            name = "gorun torch.distributed transfer"
            threading.Thread(target=self._bring_aside, name=name, daemon=True).start()
        return self._future

    def _bring_aside(self) -> None:
        counters.help()
        self._bring()

    def _bring(self) -> None:
        self._future.bring()
        self._under_way.discard(self)

    def is_completed(self) -> bool:
        """Report whether the tensor has arrived; it is there then, as with NCCL, also without wait()."""
        if self._future.arrives(0):
            self._bring()
        return self._future.done()

    def source_rank(self) -> int:
        """Return which rank of the group the tensor is from."""
        return self._source

    _source_rank = source_rank


class Arrivals:
    """The receives from any rank under a tag. The first tensor is for the receive that was called first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: collections.deque[weakref.ref[Incoming]] = collections.deque()  # without a sender yet


class Incoming(dist.Work):
    """A tensor from the first rank that sends one. wait() and is_completed() look for that rank."""

    def __init__(self, look: Callable[[], Transfer | None], limit: Limit, arrivals: Arrivals) -> None:
        super().__init__()
        self._look = look
        self._limit = limit
        self._arrivals = arrivals
        self._transfer: Transfer | None = None
        with arrivals.lock:
            arrivals.open.append(weakref.ref(self))

    def _begun(self) -> Transfer | None:
        with self._arrivals.lock:
            while self._transfer is None:
                first = self._arrivals.open[0]()
                if first is not None and first._transfer is None:  # otherwise dropped, or cut short by Ctrl-C
                    first._transfer = first._look()
                    if first._transfer is None:
                        break
                self._arrivals.open.popleft()
            return self._transfer

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the tensor has arrived, or raise why it has not. No time is the group's."""
        self._limit.check()
        seconds = timeout.total_seconds() if timeout else self._limit.seconds
        pause = _FIRST_PAUSE
        began = counters.waits()
        try:
            while self._begun() is None:
                if seconds <= 0:
                    if timeout:
                        _in_time(lambda _: False, timeout)
                    raise self._limit.exceed("recv from any rank")
                time.sleep(pause)
                seconds -= pause
                pause = min(2 * pause, _LAST_PAUSE)
        finally:
            counters.missed(began)
        assert self._transfer is not None
        return self._transfer.wait(timeout)

    def is_completed(self) -> bool:
        """Report whether wait() would return at once."""
        transfer = self._begun()
        return transfer is not None and transfer.is_completed()

    def source_rank(self) -> int:
        """Return which rank of the group the tensor is from, once it has arrived."""
        return -1 if self._transfer is None else self._transfer.source_rank()

    _source_rank = source_rank


_NOTHING = _Nothing()

_threads: weakref.WeakSet[Waiting] = weakref.WeakSet()


@atexit.register
def _join() -> None:
    """End the threads before Python ends: one that is in C++ then would abort the process."""
    for waiting in list(_threads):
        waiting.join()


def _unused() -> int:
    works = Works()
    works.append(Work(_NOTHING))
    return works.references(0)


_UNUSED = _unused()  # the count of a work that only its group refers to


def _resting(wait: Callable[[], Any]) -> Any:
    """Wait for a thread that counts how long the rank waits."""
    began = counters.waits()
    try:
        return wait()
    finally:
        counters.blocked(began)


def _in_time(over: Callable[[float], bool], timeout: timedelta) -> None:
    if not over(timeout.total_seconds()):
        raise RuntimeError(f"backend gorun: an operation is not over after {timeout.total_seconds():g} s")
