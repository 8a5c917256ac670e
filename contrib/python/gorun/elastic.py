"""Training that goes on when hosts come and go: state that is kept, restored and shared anew.

A function wrapped by run_fn() starts over with each new world. What it needs lives in a State: commit()
keeps a copy in memory, a failure goes back to that copy, and sync() gives it to the ranks that are new.

A rank that fails may do so while some of the others have the result of an operation and some do not. So
those with it may have committed once more than those without, and the newest copy that anybody has is the
one that all go on from: what was committed anywhere is not computed again by others.
"""

from __future__ import annotations

import copy
import functools
import queue
import sys
from typing import Any, Callable

from gorun import basics
from gorun.errors import InvalidArgument, Mismatch
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from gorun.objects import allgather_object

LOST_ALL = (
    "gorun: warning: every process that had the training's state is gone: training goes on from what the "
    "script itself loads, or from the beginning\n"
    "gorun: hint: let the script save a checkpoint to a file now and then, and load it when it starts"
)


class HostUpdateResult:
    """What happened to the hosts; the values add up."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Passes news about the hosts on to the states that training runs on."""

    def __init__(self) -> None:
        self._listeners: list[State] = []

    def init(self) -> None:
        """Get ready for news."""

    def register_listener(self, listener: State) -> None:
        """Tell a state from now on."""
        self._listeners.append(listener)

    def remove_listener(self, listener: State) -> None:
        """Tell a state no longer."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def poll(self) -> None:
        """Pass on what this rank's session has heard. News of an earlier world ended with its session."""
        if basics.is_initialized():
            for news in basics.world().session.news():
                self.handle_hosts_updated(news.stamp, news.flags)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell every state."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


class State:
    """What training must not lose. Subclasses say how it is saved, restored and shared."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
        self._last_updated_timestamp = 0.0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = 0  # copies that were made, since the beginning of the job
        self._reached = 0  # calls of commit()

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Call these when a new world has begun, to set a learning rate by its size for example."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Begin in a new world."""
        self._host_messages = queue.SimpleQueue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Take news about the hosts, for the next check_host_updates(). Any thread may call it."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Keep the state as it is now, then let hosts come and go."""
        self.save()
        self._reached += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks at once if the root has heard of new or lost hosts."""
        if not basics.elastic():
            return  # a fixed job need not ask the root after every batch
        notification_manager.poll()
        last, result = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > self._last_updated_timestamp:
                last, result = max(last, timestamp), result | update
        # The root decides for all, also for a rank that is new and has never heard of an update.
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


class ObjectState(State):
    """State made of attributes: ObjectState(bcast, rank, epoch=0, batch=0)."""

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        self._saved_state = kwargs
        self._set_attrs()
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)

    def save(self) -> None:
        """Copy the attributes."""
        self._commits += 1
        self._saved_state = copy.deepcopy({name: getattr(self, name) for name in self._saved_state})

    def restore(self) -> None:
        """Set the attributes back."""
        self._set_attrs()

    def sync(self) -> None:
        """Take over the state of the rank that has committed most often, as it is now, and keep it."""
        root, commits = newest(self._commits)
        self._take_over(root)
        self.save()  # only now: who fails halfway goes back to what belongs together
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
    """Return the first of the ranks that have committed most often, and how often. All ranks call it."""
    if not basics.is_initialized() or basics.size() == 1:
        return 0, commits
    all_commits = allgather_object(commits, name="gorun.elastic.newest")
    most = max(all_commits)
    return all_commits.index(most), most


def all_have_it(mine: bool) -> bool:
    """Tell whether every rank of this world says that it has the state that all had. All ranks call it.

    Those that left a world because hosts only left have it; but who is in the next one is decided when they
    are all there: one may have died on its way, or another host may have come. And a rank that has failed
    meanwhile went back to its last commit.
    """
    if not basics.is_initialized() or basics.size() == 1:
        return mine
    return all(allgather_object(mine, name="gorun.elastic.all_have_it"))


class Mistakes:
    """Tells failures that the script makes itself, which another world does not mend, from others."""

    MOST = 3  # in a row, without a commit between them

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._row = 0
        self._reached = -1

    def take(self, error: HorovodInternalError, reached: int) -> bool:
        """Tell about a failure after so many commits; whether to start over."""
        if not isinstance(error.__cause__, (InvalidArgument, Mismatch)):
            return True
        self._row = self._row + 1 if reached == self._reached else 1
        self._reached = reached
        if self._row >= self.MOST:
            return False
        text = str(error)
        if text not in self._told:
            self._told.add(text)
            print(f"gorun: warning: going back to the last commit: {text}", file=sys.stderr, flush=True)
        return True


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a State."""
    return run_fn(func, basics.reset)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Return func(state, …) such that it starts over with every new world until it returns.

    Where ranks disagree about what they do, no other world helps: they start over twice, and then it raises.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = again = False
        mistakes = Mistakes()
        fresh = basics.late()  # and has nothing to share: of those that have, one is rank 0
        try:
            while True:
                try:
                    if again:  # inside, as the next world may fail as well, before training goes on in it
                        reset()
                        state.on_reset()
                    if not all_have_it(skip_sync):
                        if fresh and basics.rank() == 0:
                            print(LOST_ALL, file=sys.stderr, flush=True)
                        state.sync()
                    fresh = False
                    return func(state, *args, **kwargs)
                except HorovodInternalError as error:
                    if not mistakes.take(error, state._reached):
                        raise
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                again = True
        finally:
            notification_manager.remove_listener(state)

    return wrapper
