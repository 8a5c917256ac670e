"""Operations on GPUs that are under way, as World takes operations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from gorun.gpu.calls import Work
    from gorun.gpu.hierarchy import Reduction
    from gorun.world import World

_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3  # between two looks at the end of an operation


class _Operation:
    """An operation on a device, as World takes operations."""

    ended = False
    blocked = 0  # is not counted
    on_device = True
    _polled = False

    def begun(self) -> bool:
        """Return True: it was called."""
        return True

    def over(self) -> bool:
        """Report whether wait() would return, or raise, at once."""
        raise NotImplementedError

    def polled(self) -> bool:
        """Report what over() does; the first time, False."""
        again, self._polled = self._polled, True
        return again and self.over()

    def attend(self, seconds: float) -> bool:
        """Wait at most this many seconds. Report whether it has ended."""
        return _attend(self.over, seconds)

    def release(self) -> None:
        """Do nothing: the memory is torch's."""


class Ongoing(_Operation):
    """An operation of a group."""

    def __init__(
        self, world: World, work: Work | Reduction, memory: Sequence[torch.Tensor],
        finish: Callable[[], Any],
    ) -> None:  # fmt: skip
        """memory is what NCCL uses until the end, and what finish reads."""
        self._world = world
        self._work = work
        self._memory = memory
        self._finish = finish

    def over(self) -> bool:
        if not self._work.over() or self._work.handle < 0:
            return self._work.over()
        return self._world.attend(self._work.handle, 0)

    def wait(self) -> Any:
        """Return the result, or raise why there is none."""
        if self.ended:
            return None
        try:
            if self._work.wait():
                for tensor in self._memory:
                    _note_use(tensor)
                value = self._finish()
            else:
                value = self._world.synchronize(self._work.handle)
        except Exception:
            self.ended = True
            raise
        self.ended = True
        return value


class Together(_Operation):
    """Several operations of one call. Each has a name of its own."""

    def __init__(self, parts: Sequence[Ongoing], then: Callable[[Any], Any]) -> None:
        self._parts = parts
        self._then = then
        self._results: list[Any] = []  # so far: a wait that Ctrl-C cuts short goes on with the next part
        self._failure: Exception | None = None

    def over(self) -> bool:
        return all([part.over() for part in self._parts])

    def wait(self) -> Any:
        """Return what then makes of the results, or raise the first failure, once all have ended."""
        if self.ended:
            return None
        for part in self._parts[len(self._results) :]:
            try:
                self._results.append(part.wait())
            except Exception as error:
                self._results.append(None)
                self._failure = self._failure or error
        self.ended = True
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._then(self._results)


def _note_use(tensor: torch.Tensor) -> None:
    """Keep torch from giving a tensor's memory to another stream before this thread's has read it."""
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))


def _attend(over: Callable[[], bool], seconds: float) -> bool:
    until, pause = time.monotonic() + seconds, _PAUSE
    while not over():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True
