"""An allreduce that a rank has begun in a lane, and will wait for later.

The tensor is in the lane, and shown, when the call returns. Nobody works on it in between: whoever waits for
it, or polls it, adds the inputs up. If another rank does not come to the lane, this rank's part is handed in
to the daemon then, as it is in the lane. Until then the daemon speaks for it, so no wait for something else
has to look here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import errors
from .constants import ALLREDUCE
from .exceptions import HorovodInternalError
from .lane import Lane, Lanes
from .message import WIRE_BITS
from .world import Operation, World

if TYPE_CHECKING:
    from .collectives import Binding


class InLane:
    """One operation, for World as others are: over(), polled(), wait(), ended.

    launch()    puts the tensor into the lane, and shows it. Ctrl-C gives up what it has shown by then: others
                that come have it, and this rank does not
    settle      when all have come, or one never will: the sum is made, or the part handed in; once, by
                whichever thread comes first, under the lane's lock. Inputs stay until the next use, so
                what Ctrl-C cuts short is done again
    """

    # One object for each operation: after a thousand more the garbage collector looks through all there are.
    __slots__ = (
        "_binding", "_error", "_goal", "_handed", "_lane", "_lanes", "_name", "_outcome", "_polled",
        "_settled", "_target", "_tensor", "_world", "ended",
    )  # fmt: skip

    def __init__(
        self, world: World, lanes: Lanes, lane: Lane, name: str, binding: Binding, tensor: Any,
        target: Any | None,
    ) -> None:  # fmt: skip
        self.ended = False  # wait() has the result
        self._world, self._lanes, self._lane, self._name = world, lanes, lane, name
        self._binding, self._tensor, self._target = binding, tensor, target
        self._goal = 0  # this rank's word in the lane, once it is shown
        self._polled = False
        self._settled = False
        self._outcome: Any = None
        self._error: Exception | None = None
        self._handed: Operation | None = None  # the operation that it became

    def launch(self) -> int | None:
        """Begin, and return the handle; None if the lane is closed by now."""
        world, lanes, lane = self._world, self._lanes, self._lane
        goal = 0
        try:
            world.occupy(self._name, self)
            goal = 2 * lane.use + 2
            lane.arithmetic.put(self._tensor, lanes.enter(lane))
            if lanes.show(self._name, lane):
                self._goal = goal
                return world.launch(self)
        except BaseException:
            if goal and 2 * lane.use >= goal:
                lanes.give_up(self._name, lane)
            world.leave(self._name, self)
            raise
        world.leave(self._name, self)
        return None

    def polled(self) -> bool:
        """Report what over() does; the first time, False: see Operation.polled()."""
        again, self._polled = self._polled, True
        return again and self.over()

    def over(self) -> bool:
        """Report whether wait() would return at once."""
        if not self._goal:
            return False  # another thread is about to show it
        if not self._settled:
            try:
                all_came = self._lanes.came(self._name, self._lane, self._goal)
            except errors.GorunError:
                return True  # wait() says which
            if all_came is None or self._lane.lock.locked():
                return False  # another thread is about to know
            with self._lane.lock:
                self._settle(all_came)
        self._world.leave(self._name, self)
        return self._handed is None or self._handed.over()

    def wait(self) -> Any:
        """Wait for all ranks and return the result, or raise."""
        if not self._settled:
            try:
                all_came = self._lanes.wait(self._name, self._lane, self._goal)
            except errors.GorunError as error:
                self.ended = True
                self._world.leave(self._name, self)
                raise HorovodInternalError(str(error)) from error
            with self._lane.lock:
                self._settle(all_came)
        self._world.leave(self._name, self)
        if self._handed is not None and self._error is None:
            try:
                return self._handed.wait()
            finally:
                self.ended = self._handed.ended
        self.ended = True
        if self._error is None:
            return self._outcome
        try:
            raise self._error
        finally:
            self._error = None  # which has this frame by now

    def _settle(self, all_came: bool) -> None:
        """Make the sum, or hand this rank's part in, if that was not done; the lane's lock is held."""
        if self._settled:
            return
        # What raises is for who waits for this one: the caller may want its name for another.
        try:
            if all_came:
                half = self._goal // 2 & 1
                self._outcome = self._lane.arithmetic.add(half, self._tensor, self._target)
            else:
                self._hand_in()
        except Exception as error:
            self._error = error.with_traceback(None)
        self._settled = True

    def _hand_in(self) -> None:
        """Submit what this rank has in the lane, not the tensor, which may be another by now."""
        if self._handed is not None and self._handed.begun():
            return  # before Ctrl-C
        lane, binding, tensor, target = self._lane, self._binding, self._tensor, self._target
        mine = lane.own[self._goal // 2 & 1]
        operation = self._handed = Operation(self._world, 0)
        block = self._world.alloc(len(mine))
        memory = block.view[: len(mine)]
        memory[:] = mine
        operation.request(
            ALLREDUCE, self._name, lane.dtype, lane.shape, block, True, op=lane.op & (1 << WIRE_BITS) - 1,
            wire=lane.op >> WIRE_BITS, lane=True,
        )  # fmt: skip

        def finish(_: Sequence[Any]) -> Any:
            if target is None:
                return binding.load(memory, lane.shape, tensor)
            binding.load_into(memory, target)
            return target

        try:
            operation.submit(finish)
        except Exception:
            self._world.abandon(operation)
            raise
