"""What this rank counts about its own time, in a page of memory that its daemon reads.

gorun shows at the end of a job, and in gorun top, where the time of each rank went: into computing, into
waiting for data, for other ranks and for bytes to move. worker/counters describes the page. Without gorun,
or where the page cannot be opened, the numbers go into memory of this process, and no one looks at them.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Callable, TypeVar

# Written by go generate ./worker/session/codec.
# begin table: counters
PAGE_BYTES = 4096  # size of the page
BEGAN = 0  # offsets in the page: stamp of when the rank began to count
STEPS = 8
STEP_TIME = 16  # length of the last step
DATA = 24  # waiting for input data
OTHERS = 32  # waiting for other ranks
COMMUNICATION = 40  # waiting while an operation ran
HIDDEN = 48  # operations that ran while the rank did something else
OPERATIONS = 56
ACTIVITY = 64
SINCE = 72  # stamp of when the activity began
SIGNAL = 80  # number of the signal that asks for stacks
MAIN_SIGNAL = 88  # number of the signal that asks for the main thread's stack alone
COMPUTING = 0  # activities
WAITING_FOR_DATA = 1
WAITING_IN_GORUN = 2
# end table

LOADS, LOADED, STEP = range(3)  # events of graphs; contrib/c/session/counters.h has the numbers too

_Item = TypeVar("_Item")

now = time.monotonic_ns  # the clock of all stamps


class _Thread(threading.local):
    helps = False  # the script's threads, which may compute while this one waits


_thread = _Thread()


def _computed() -> int:
    """Return for how many nanoseconds the main thread has run, or could have run on a CPU less busy."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/schedstat", "rb", buffering=0) as file:
            return sum(map(int, file.read(64).split()[:2]))
    except (OSError, ValueError):  # a kernel without it
        return time.clock_gettime_ns(time.pthread_getcpuclockid(threading.main_thread().ident or 0))


def _words(environ: Mapping[str, str]) -> memoryview:
    """Return the page that the environment names, or private memory."""
    path = environ.get("GORUN_COUNTERS", "")
    if path:
        try:
            with open(path, "r+b", buffering=0) as file:
                return memoryview(mmap.mmap(file.fileno(), PAGE_BYTES)).cast("Q")
        except (OSError, ValueError):
            pass  # another container, or another user
    return memoryview(bytearray(PAGE_BYTES)).cast("Q")


def _offer_stacks(environ: Mapping[str, str]) -> tuple[int, int]:
    """Let signals write the stacks of all threads, and of the main thread, where the daemon reads them.

    Return their numbers, 0 for none. faulthandler writes in the handler of the signal itself, also while the
    interpreter waits in C for ever. A thread that begins or ends meanwhile is fatal to the first signal.
    """
    every, main = signal.SIGRTMIN + 13, signal.SIGRTMIN + 14
    path = environ.get("GORUN_STACKS", "")
    try:
        if not path or any(signal.getsignal(number) is not signal.SIG_DFL for number in (every, main)):
            return 0, 0
        # A pipe that is full must not stop the program.
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        faulthandler.register(every, file=fd, all_threads=True)
        faulthandler.register(main, file=fd, all_threads=False)
    except (OSError, ValueError, AttributeError):
        return 0, 0
    return every, main


class Counters:
    """The counters of a process. Threads may race for them: a count that is lost that way is not missed."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._words = _words(environ)
        self._last_step = 0
        self._loading = 0  # the thread that waits for data
        self.on_help: Callable[[int], object] = lambda _: None  # the library, which counts operations

    def address(self) -> int:
        """Return where the page is, for the library."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._words))

    def begin(self) -> None:
        """Count from now on. A second call does nothing."""
        if not self._last_step:
            self._last_step = now()
            self._words[BEGAN // 8] = self._words[BEGAN // 8] or self._last_step  # or the library has
            every, self._words[MAIN_SIGNAL // 8] = _offer_stacks(os.environ)
            self._words[SIGNAL // 8] = every

    def help(self) -> None:
        """Note that the calling thread waits while the script's may compute.

        Its waits count as long as the main thread does not run, and never as what the rank does now.
        """
        _thread.helps = True
        self.on_help(1)

    def waits(self) -> int:
        """Note that the rank waits for an operation, and return the time."""
        words, began = self._words, now()
        if _thread.helps:
            return began - _computed()
        words[SINCE // 8] = began
        words[ACTIVITY // 8] = WAITING_IN_GORUN
        return began

    def blocked(self, began: int) -> int:
        """End a wait that waits() started, and return its nanoseconds."""
        if _thread.helps:
            return max(0, now() - _computed() - began)
        self._words[ACTIVITY // 8] = COMPUTING
        return now() - began

    def shown(self, blocked: int, took: int) -> None:
        """Count nanoseconds of a wait for an operation, which the library has counted as hidden."""
        words, seen = self._words, min(blocked, took)
        words[OTHERS // 8] += blocked - seen
        words[COMMUNICATION // 8] += seen
        words[HIDDEN // 8] = max(0, words[HIDDEN // 8] - seen)  # another thread may have lost it

    def missed(self, began: int) -> None:
        """Count a wait for ranks that did not all come; the daemon's operation that follows counts as one."""
        self._words[OTHERS // 8] += self.blocked(began)

    def step(self) -> None:
        """Count the end of a training step, for `gorun top` and the summary at the end of a job."""
        self.begin()
        stamp = now()
        self._words[STEP_TIME // 8] = stamp - self._last_step
        self._last_step = stamp
        self._words[STEPS // 8] += 1

    def loading(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items of an iterable, and count the time that each takes to come."""
        self.begin()
        iterator = iter(items)
        while True:
            began = self.loads()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.loaded(began)
            yield item

    def loads(self) -> int:
        """Note that the rank waits for data, and return the time, or 0 inside of another such wait."""
        thread = threading.get_ident()
        if thread == self._loading:
            return 0
        self._loading = thread
        words, began = self._words, now()
        words[SINCE // 8] = began
        words[ACTIVITY // 8] = WAITING_FOR_DATA
        return began

    def loaded(self, began: int) -> None:
        """Count a wait for data that loads() started."""
        if not began:
            return
        self._loading = 0
        self._words[DATA // 8] += now() - began
        self._words[ACTIVITY // 8] = COMPUTING

    def totals(self) -> dict[str, int]:
        """Return steps, operations, and times in nanoseconds. A wait that is not over does not count."""
        words = self._words
        began = words[BEGAN // 8]
        return {
            "elapsed": now() - began if began else 0,
            "steps": words[STEPS // 8],
            "step": words[STEP_TIME // 8],
            "data": words[DATA // 8],
            "others": words[OTHERS // 8],
            "communication": words[COMMUNICATION // 8],
            "hidden": words[HIDDEN // 8],
            "operations": words[OPERATIONS // 8],
        }


counters = Counters()


def _forked() -> None:
    """Leave the page to the parent: a forked process counts for itself."""
    counters.__init__({})  # type: ignore[misc]


os.register_at_fork(after_in_child=_forked)
