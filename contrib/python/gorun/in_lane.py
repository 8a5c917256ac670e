"""An allreduce that a rank has begun in a lane, and will wait for later.

Nobody works on it in between: whoever waits for it, or polls it, adds the inputs up. If another rank does not
come to the lane, it is handed to the daemon then, with whatever that makes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import errors
from .exceptions import HorovodInternalError
from .lane import Lane, Lanes

if TYPE_CHECKING:
    from .collectives import Binding
    from .world import Operation, World


class Entered(dict[str, "InLane"]):
    """Operations of this rank in lanes, by the name that ranks meet under."""

    def look(self) -> bool:
        """End those that all ranks have come to, or one does not; report whether others are left."""
        for operation in list(self.values()):
            operation.over()
        return bool(self)

    def news(self) -> bool:
        """Report whether look() would end one."""
        return any(operation.has_news() for operation in list(self.values()))


class InLane:
    """One operation, as World has others: over(), polled(), wait(), ended; release() has nothing to do.

    The result is a new tensor, or the target overwritten. hand_in submits to the daemon what is
    in a lane, and returns the handle.
    """

    # One object for each: a thousand of them, each with others, would have the garbage collector look through
    # all objects of the program.
    __slots__ = (
        "_daemons", "_done", "_half", "_hand_in", "_lanes", "_outcome", "_polled", "_world", "binding",
        "ended", "key", "lane", "target", "tensor",
    )  # fmt: skip

    def __init__(
        self, world: World, lanes: Lanes, lane: Lane, key: str, binding: Binding, tensor: Any,
        target: Any | None, hand_in: Callable[[InLane], int],
    ) -> None:  # fmt: skip
        self.ended = False  # wait() has the result
        self.lane, self.key, self.binding, self.tensor, self.target = lane, key, binding, tensor, target
        self._world, self._lanes, self._hand_in = world, lanes, hand_in
        self._half = lanes.enter(lane)
        self._polled = False
        self._done = False
        self._outcome: Any = None  # the result, or an Exception
        self._daemons: Operation | None = None  # the operation, once it was handed in

    def launch(self) -> int:
        """Put this rank's tensor into the lane, show it, and return the handle."""
        lanes, lane, world = self._lanes, self.lane, self._world
        lane.busy = True
        world.entered[self.key] = self
        came = None
        try:
            lane.arithmetic.put(self.tensor, self._half)
            came = False
            came = lanes.come(self.key, lane)
            if came:
                return world.launch(self)
        except BaseException:
            if came is not None:  # interrupted: nobody shall wait for this rank here
                lanes.give_up(self.key, lane)
            self._leave()
            raise
        self._leave()
        return self._hand_in(self)

    def over(self) -> bool:
        """Report whether it has ended, without waiting."""
        if not self._done and self._daemons is None:
            try:
                all_came = self._lanes.met(self.key, self.lane)
            except errors.GorunError as error:
                raise HorovodInternalError(str(error)) from error
            if all_came is None:
                return False
            self._settle(all_came)
        return self._done or self._daemons is not None and self._daemons.over()

    def has_news(self) -> bool:
        """Report whether over() would find more than the last time."""
        return self._lanes.has_news(self.lane)

    def polled(self) -> bool:
        """Report what over() does; the first time, False: see Operation.polled()."""
        again, self._polled = self._polled, True
        return again and self.over()

    def wait(self) -> Any:
        """Wait for all ranks and return the result, or raise."""
        if not self._done and self._daemons is None:
            try:
                all_came = self._lanes.wait(self.key, self.lane)
            except errors.GorunError as error:
                self.ended = True
                self._leave()
                raise HorovodInternalError(str(error)) from error
            self._settle(all_came)
        if self._daemons is not None:
            try:
                return self._daemons.wait()
            finally:
                self.ended = self._daemons.ended
        self.ended = True
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def release(self) -> None:
        """Nothing: its memory is the lane's."""

    def _settle(self, all_came: bool) -> None:
        try:
            if not all_came:
                self._leave()
                self._daemons = self._world.adopt(self._hand_in(self))
                return
            self._outcome = self.lane.arithmetic.add(self._half, self.tensor, self.target)
        except Exception as error:  # for who waits for this one: the caller may wait for another
            self._outcome = error.with_traceback(None)
        self._done = True
        self._leave()

    def _leave(self) -> None:
        self.lane.busy = False
        if self._world.entered.get(self.key) is self:
            del self._world.entered[self.key]
