"""What a rank needs from its host's daemon: shared memory, and operations by name.

``Session.connect`` returns a session with the daemon that started this rank or, outside of a job, a
world of one. A session starts no thread. It belongs to the process that opened it.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Protocol

from .arena import Block
from .constants import ADD_GROUP, MAX_IN_FLIGHT, PEEK, REMOVE_GROUP, SUM
from .errors import GorunError
from .message import HostsChanged
from .slot import Slots

__all__ = ["Block", "Result", "Session"]


class Result:
    """The end of an operation.

    ``view`` is the result of operations whose size a rank cannot know beforehand, read-only bytes that
    all ranks of the host share: call ``release`` when they are no longer needed. It is None for
    operations whose result is in the caller's own block. ``rows`` is what each rank contributed to
    the first dimension. ``took`` is for how many nanoseconds it ran once all ranks had come, as far as known.
    """

    __slots__ = ("_release", "rows", "shape", "took", "view")

    def __init__(
        self,
        shape: tuple[int, ...] = (),
        rows: tuple[int, ...] = (),
        view: memoryview | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.view = view
        self.shape = shape
        self.rows = rows
        self.took = 0
        self._release = release

    def release(self) -> None:
        """Give the shared memory back; nothing may look at it after that. A second call does nothing."""
        release, self._release = self._release, None
        self.view = None
        if release is not None:
            release()


class Encoded(Protocol):
    """An operation as a session's daemon takes it; the session alone knows what is in it."""


class Session(abc.ABC):
    """This rank's place in the world and its operations in flight. Thread-safe."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    epoch: int
    wire = 0  # how sums of floats travel between hosts, as the rank protocol numbers it
    slots: Slots | None = None  # if there are any, submit() also takes the arguments slot and wire
    # Called by whichever thread reads the end of an operation, with its handle and the microseconds it took
    # once all ranks had submitted their part. May be called before submit has returned, and not at all.
    on_end: Callable[[int, int], None] | None = None

    @staticmethod
    def connect(environ: Mapping[str, str] = os.environ) -> Session:
        """Open the session that the environment describes; waits until the world is complete."""
        if environ.get("GORUN_SOCKET"):
            from .daemon import DaemonSession

            return DaemonSession(environ)
        from .local import LocalSession

        return LocalSession()

    @abc.abstractmethod
    def alloc(self, nbytes: int) -> Block:
        """Return a block that operations can read and write. MemoryError if there is no more."""

    @abc.abstractmethod
    def submit(
        self,
        kind: int,
        name: str,
        dtype: int,
        shape: Sequence[int],
        src: Block | None,
        dst: Block | None,
        *,
        op: int = SUM,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        group: int = 0,
        splits: Sequence[int] | None = None,
        handle: int | None = None,
    ) -> int:
        """Start an operation and return its handle, which is the one given, if there is one.

        Neither block may be changed or freed before wait; dst may be src. dst is for allreduce and
        broadcast only, the other kinds bring their result themselves. splits of an allreduce: FOLLOWS to
        begin, or fail, with another one that is submitted later, or the handles of those that follow it.
        """

    def encode(
        self, kind: int, name: str, dtype: int, shape: Sequence[int], block: Block, **options: Any
    ) -> Encoded | None:
        """Return an operation on a block, in place, that submit_encoded() can begin again and again.

        options are as for submit(). None: this session has no such thing.
        """
        return None

    def submit_encoded(self, encoded: Encoded, handle: int) -> None:
        """Begin what encode() returned, for the session's wire; it is not in flight already."""
        raise NotImplementedError

    @abc.abstractmethod
    def reserve(self) -> int:
        """Return a handle for submit(): known before, so that a Ctrl-C there leaves no doubt."""

    @abc.abstractmethod
    def has(self, handle: int) -> bool:
        """Report whether an operation of that handle was submitted, and no thread has waited for it yet."""

    def room(self) -> int:
        """Return how many operations more can be in flight."""
        return MAX_IN_FLIGHT

    def add_group(self, ranks: Sequence[int], number: int = 0) -> int:
        """Make a group of some ranks and return its number, the same on all ranks.

        All ranks of the world take part, members or not, one group after the other in the same order. If
        there is a number, from constants.DECLARED on, only the members do, when they like.
        """
        handle = self.submit(ADD_GROUP, "process sets", 0, (), None, None, group=number, splits=ranks)
        return self.wait(handle).rows[0]

    def remove_group(self, group: int) -> None:
        """Forget a group; all ranks of the world take part. What waits for a member's part fails."""
        self.wait(self.submit(REMOVE_GROUP, "process sets", 0, (), None, None, root=group))

    def senders(self, name: str) -> tuple[int, ...]:
        """Return the ranks with a send to this one that it has not received, under names that contain one."""
        return self.wait(self.submit(PEEK, name, 0, (), None, None)).rows

    def desert(self) -> None:  # noqa: B027 (where nothing follows anything there is nothing to do)
        """Fail what follows an operation that never comes."""

    @abc.abstractmethod
    def poll(self, handle: int) -> bool:
        """Report whether wait would return, or raise, at once."""

    def kept(self) -> None:  # noqa: B027 (a world of one process is not elastic)
        """Note that the program has committed its state in this world."""

    def news(self) -> list[HostsChanged]:
        """Return the news about the job's hosts since the last call; does not wait for any."""
        return []

    def lost(self) -> GorunError | None:
        """Return why the world has ended, None if this rank knows of nothing; does not wait."""
        return None

    def attend(self, handle: int, seconds: float | None = None) -> bool:
        """Sleep until something happens, so long at most.

        Report whether wait would now return, or the handle is unknown.
        """
        return True

    @abc.abstractmethod
    def wait(self, handle: int) -> Result:
        """Wait for an operation's end and forget the handle; raises if the operation failed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave the world. Operations in flight fail; a second call does nothing."""
