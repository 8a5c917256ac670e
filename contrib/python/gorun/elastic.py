"""Training that continues when hosts come and go: state is saved, restored and shared.

A function wrapped by run_fn() starts over with each new world. What it needs lives in a State: commit()
keeps a copy in memory, a failure goes back to that copy, and sync() gives it to new ranks.

When a rank fails, some of the others may have the result of an operation and some may not. So some ranks
may have committed once more than others. All continue from the newest copy of any rank: what was committed
anywhere is not computed again.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, Callable

from gorun import basics, errors
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt, NotInitializedError
from gorun.objects import allgather_object, broadcast_object

__all__ = [
    "HorovodInternalError", "HostUpdateResult", "HostsUpdatedInterrupt", "ObjectState", "State",
    "WorkerNotificationManager", "notification_manager", "run", "run_fn",
]  # fmt: skip

LOST_ALL = (
    "gorun: warning: every process that had the training's state is gone: training goes on from what the "
    "script itself loads, or from the beginning\n"
    "gorun: hint: let the script save a checkpoint to a file now and then, and load it when it starts"
)

MOST_FAILURES = 10  # failures of this rank itself in a row, without a commit between them
LONGEST_PAUSE = 5.0  # seconds
FAILED = "gorun: warning: the world ended: {}"
PAUSED = "gorun: warning: {} worlds in a row ended without a commit: the next begins in {:.1f} s"
GIVEN_UP = "gorun: warning: {} worlds in a row ended without a commit, and training is given up"


NEWS_SECONDS = 0.1  # between two checks of the thread that delivers news


class HostUpdateResult(enum.IntFlag):
    """What happened to the hosts; the values add up."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Passes news about the hosts on to the states of the training.

    In an elastic job a thread polls for news while any state is registered. It does not sleep at the
    session's socket, because every message would wake it there.
    """

    def __init__(self) -> None:
        self._listeners: list[State] = []
        self._passing = threading.RLock()  # held while news is delivered, and while the world changes
        self._watcher: threading.Thread | None = None
        self._no_listeners = threading.Event()  # ends the watcher

    def init(self) -> None:
        """Start to collect news."""

    def register_listener(self, listener: State) -> None:
        """Deliver news to a state from now on."""
        self._listeners.append(listener)
        if self._watcher is None and basics.elastic():
            self._no_listeners = threading.Event()
            watch = functools.partial(self._watch, self._no_listeners)
            self._watcher = threading.Thread(target=watch, name="gorun: news of hosts", daemon=True)
            self._watcher.start()

    def remove_listener(self, listener: State) -> None:
        """Deliver no more news to a state."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners and self._watcher is not None:
            watcher, self._watcher = self._watcher, None
            self._no_listeners.set()
            if watcher is not threading.current_thread():
                watcher.join()

    def _watch(self, no_listeners: threading.Event) -> None:
        while not no_listeners.wait(NEWS_SECONDS):
            # Never wait for the lock: remove_listener() may hold it while it waits for this thread.
            if not self._passing.acquire(blocking=False):
                continue
            try:
                self.poll()
            except Exception:  # from a script's own on_hosts_updated(): keep delivering news to it
                traceback.print_exc()
            finally:
                self._passing.release()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Deliver no news in this context: a State that enters a new world drops older news."""
        with self._passing:
            yield

    def poll(self) -> None:
        """Deliver the news that this world's session has received."""
        with self._passing:
            try:
                session = basics.world().session
            except NotInitializedError:
                return
            for news in session.news():
                self.handle_hosts_updated(news.stamp, HostUpdateResult(news.flags))

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Deliver news to every state."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


class State:
    """The state that training must not lose. A subclass defines how to save, restore and share it."""

    _kept = False  # something was committed in this world
    _failure: Exception | None = None  # that has ended the world, if restore() is called for that

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
        self._last_updated_timestamp = 0.0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = 0  # copies made since the beginning of the job

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Call these whenever a new world begins, for example to adapt the learning rate to its size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Enter a new world."""
        self._host_messages = queue.SimpleQueue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Keep news about the hosts for the next check_host_updates(). Any thread may call this."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state as it is now, then let hosts join and leave."""
        self.save()
        self._kept = True
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt, on all ranks at once, if rank 0 knows of new or lost hosts."""
        if not basics.elastic():
            return  # saves a fixed job a broadcast after every batch
        if self._kept and basics.is_initialized():
            basics.world().session.kept()
        notification_manager.poll()
        last, result = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > self._last_updated_timestamp:
                last, result = max(last, timestamp), result | update
        # The root decides for all ranks, also for a new one that has had no news yet.
        self._last_updated_timestamp, result = self._bcast_object((last, result))
        if result != HostUpdateResult.no_update:
            raise HostsUpdatedInterrupt(result == HostUpdateResult.removed)

    def save(self) -> None:
        """Copy the state to memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give the root's state to all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to the size of a new world."""

    def _ended(self) -> None:
        """Note that the training function has ended."""


class ObjectState(State):
    """A State whose attributes are its values: ObjectState(epoch=0, batch=0).

    The first two arguments exist for programs written for Horovod, which pass broadcast_object and rank.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        self._saved_state = kwargs
        self._set_attrs()
        super().__init__(bcast_object=bcast_object or broadcast_object, get_rank=get_rank or basics.rank)

    def save(self) -> None:
        """Copy the attributes."""
        self._keep(self._copied())

    def _copied(self) -> dict[str, Any]:
        return copy.deepcopy({name: getattr(self, name) for name in self._saved_state})

    def _keep(self, copied: dict[str, Any]) -> None:
        """Let restore() use this copy from now on: it is complete."""
        self._saved_state = copied
        self._commits += 1
        self._kept = True

    def restore(self) -> None:
        """Set the attributes back."""
        self._set_attrs()

    def sync(self) -> None:
        """Take the current state from the rank with the most commits, and save it."""
        root, commits = newest(self._commits)
        self._take_over(root)
        self.save()  # only now: a rank that fails halfway goes back to a consistent copy
        self._commits = commits + 1

    def _take_over(self, root: int) -> None:
        if self._saved_state:
            values = {name: getattr(self, name) for name in self._saved_state}
            values = self._bcast_object(values, root) if root else self._bcast_object(values)
            for name, value in values.items():
                setattr(self, name, value)

    def _set_attrs(self) -> None:
        for name, value in copy.deepcopy(self._saved_state).items():
            setattr(self, name, value)


def newest(commits: int) -> tuple[int, int]:
    """Return the first rank with the most commits, and that number. All ranks call this."""
    all_commits = of_all(commits, name="gorun.elastic.newest")
    most = max(all_commits)
    return all_commits.index(most), most


def of_all(value: Any, name: str) -> list[Any]:
    """Return every rank's value. All ranks call this."""
    if not basics.is_initialized() or basics.size() == 1:
        return [value]
    return allgather_object(value, name=name)


def all_have_it(mine: bool) -> bool:
    """Report whether every rank of this world still has the state that the ranks share. All ranks call this.

    A rank has it (mine) if it left the last world only because hosts left. The ranks must ask each other once
    all have entered the new world: a rank may have died on the way, another host may have joined, and a rank
    that failed meanwhile has gone back to its last commit.
    """
    return all(of_all(mine, name="gorun.elastic.all_have_it"))


class Failures:
    """Counts the consecutive worlds that failed without a commit.

    Other ranks may be lost any number of times. A failure of this rank may be temporary, when its host is
    short of something, or a mistake in the script, which comes back each time and must reach the user.
    """

    def __init__(self) -> None:
        self._worlds = 0
        self._own = 0  # those that this rank caused, not the loss of another
        self._trained = False  # an earlier world had a commit

    def world_ended(self, kept: bool) -> bool:
        """Note whether the world that ended had a commit; return whether an earlier one had."""
        trained, self._trained = self._trained, self._trained or kept
        if kept:
            self._worlds = self._own = 0
        return trained

    def pause(self, failure: HorovodInternalError, kept: bool) -> float | None:
        """Report a failure. Return the seconds to wait before the next world, or None to give up."""
        trained = self.world_ended(kept)
        cause = failure.__cause__
        if isinstance(cause, errors.Mismatch) and (kept or not trained):
            return None  # the script's mistake. In a world that is new to this rank it may be a joiner's
        own = not isinstance(cause, (errors.Aborted, errors.Shutdown))
        self._worlds += 1
        self._own += own
        if self._own == MOST_FAILURES:
            _say(GIVEN_UP.format(self._worlds))
            return None
        pause = min(0.1 * 2 ** min(self._worlds - 3, 9), LONGEST_PAUSE) if self._worlds > 2 else 0.0
        if own or pause:  # else the launcher reports which ranks were lost
            _say(FAILED.format(failure))
        if pause:
            _say(PAUSED.format(self._worlds, pause))
        return pause


def meant(failure: Exception | None) -> bool:
    """Report whether the script itself wants to go back: it calls restore(), or has raised the failure."""
    if failure is None:
        return True
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else "gorun"
    return failure.__cause__ is None and raised_in.partition(".")[0] != "gorun"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a State."""
    return run_fn(func, basics.reset)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Return a wrapper of func(state, …) that calls func again in each new world until it returns.

    It raises HorovodInternalError when a further try is pointless: after ten failures of this rank in a row
    without a commit, or when the script makes ranks disagree about an operation.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = again = False
        failures, pause = Failures(), 0.0
        fresh = basics.late()  # this process has no state; rank 0 has, unless all ranks that had it are gone
        try:
            while True:
                try:
                    state._kept = False
                    if again:  # within the try: the next world may fail before training continues in it
                        time.sleep(pause)
                        with notification_manager.quiet():
                            reset()
                            state.on_reset()
                    if not all_have_it(skip_sync):
                        if fresh and basics.rank() == 0:
                            _say(LOST_ALL)
                        state.sync()
                    fresh = state._kept = False
                    return func(state, *args, **kwargs)
                except HorovodInternalError as failure:
                    wait = failures.pause(failure, state._kept)
                    if wait is None:
                        raise
                    state._failure = failure
                    state.restore()
                    state._failure = None
                    skip_sync, pause = False, wait
                except HostsUpdatedInterrupt as interrupt:
                    failures.world_ended(state._kept)
                    skip_sync, pause = interrupt.skip_sync, 0.0
                again = True
        finally:
            notification_manager.remove_listener(state)
            state._ended()

    return wrapper
