"""The actors of an elastic job: one for each slot of the cluster, and one for the daemon of each node."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, Callable

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gorun.exceptions import HorovodInternalError
from gorun.ray.adapter import Daemons, first_line
from gorun.ray.worker import BaseHorovodWorker


@dataclasses.dataclass
class _Member:
    """The actor of a slot. It is ready when it waits for a rank, and leaves when its result has arrived."""

    actor: Any
    host: str
    index: int
    preparing: list[Any]
    result: Any = None
    left: Any = None

    @property
    def ready(self) -> bool:
        return self.result is not None

    @property
    def awaited(self) -> Any:
        """Return the reference with the next news."""
        return next(news for news in (self.left, self.result, self.preparing[-1]) if news is not None)


class Team:
    """Makes actors where there are slots, has each call the function as a rank, and keeps the results."""

    def __init__(
        self, token: str, needs: Mapping[str, float], prepare: Callable[[Any, int], list[Any]], function: Any
    ) -> None:
        self.daemons = Daemons()
        self.results: list[tuple[int, Any]] = []  # of functions that have returned, with their ranks
        self.failure = ""  # of the last function or actor that failed by itself
        self.unprepared: Exception | None = None  # what the first actor raised that could not get ready
        self._weight = 0  # of failure: 1 is a consequence of another rank's, 2 a cause
        self._token, self._needs, self._prepare, self._function = token, needs, prepare, function
        self._members: dict[tuple[str, int], _Member] = {}
        self._done: set[tuple[str, int]] = set()
        self._daemons_ready: dict[str, Any] = {}

    def follow(self, slots: Mapping[str, tuple[str, int]], most: int | None) -> None:
        """Make actors for slots that have none, at most so many, and end those of hosts that are gone.

        slots has the number of the node, and of its slots, by host.
        """
        for host in [host for host in self._daemons_ready if host not in slots]:
            self._daemons_ready.pop(host)
            self.daemons.remove(host)
            for place in [place for place in self._members if place[0] == host]:
                ray.kill(self._members.pop(place).actor)
        for host, (node, count) in slots.items():
            if host not in self._daemons_ready:
                self._daemons_ready[host] = self.daemons.add(host, node).ready.remote()
            for index in range(count):
                place = (host, index)
                room = most is None or len(self._members) + len(self._done) < most
                if room and place not in self._members and place not in self._done:
                    self._members[place] = self._make(host, node, index, count)

    def _make(self, host: str, node: str, index: int, count: int) -> _Member:
        where = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        actor = (
            ray.remote(BaseHorovodWorker)  # type: ignore[attr-defined]
            .options(
                num_cpus=self._needs["CPU"], num_gpus=self._needs.get("GPU", 0), scheduling_strategy=where
            )
            .remote()
        )
        preparing = self._prepare(actor, count)
        return _Member(actor, host, index, [*preparing, actor.wait_for.remote(self._token, host, index)])

    def look(self, seconds: float) -> None:
        """Wait for news of the actors, at most this long, and take them in."""
        watched = {member.awaited: place for place, member in self._members.items()}
        if not watched:
            return
        ray.wait(list(watched), timeout=seconds)  # for the first, and now for all
        for reference in ray.wait(list(watched), num_returns=len(watched), timeout=0)[0]:
            place = watched[reference]
            member = self._members[place]
            try:
                if member.left is not None:
                    self._done.add(place)
                    self._members.pop(place)
                    ray.kill(member.actor)
                elif member.ready:
                    self.results.append(ray.get(member.result))
                    member.left = member.actor.leave.remote()
                else:
                    ray.get(member.preparing)
                    member.result = member.actor.run_attached.remote(self._function)
            except Exception as error:
                self._members.pop(place)
                ray.kill(member.actor)
                self._failed(member, error)

    def _failed(self, member: _Member, error: Exception) -> None:
        cause = getattr(error, "cause", error)
        kind = "its actor died" if isinstance(error, RayActorError) else type(cause).__name__
        text = f"slot {member.index} of {member.host}: {kind}: {first_line(cause)}"
        weight = 1 if isinstance(cause, HorovodInternalError) else 2
        if not member.ready:
            weight = 0
            if isinstance(error, RayTaskError):
                self.unprepared = self.unprepared or error
        if weight >= self._weight:
            self.failure, self._weight = text, weight
        sys.stderr.write(f"gorun: warning: {text}\n")

    def knows_cause(self) -> bool:
        """Report whether failure is no consequence of another rank's."""
        return self._weight == 2

    def slots(self) -> dict[str, int]:
        """Return how many ranks each host can have now."""
        ready = {host for host, it in self._daemons_ready.items() if ray.wait([it], timeout=0)[0]}
        count = dict.fromkeys(self._daemons_ready, 0)
        for (host, _), member in self._members.items():
            count[host] += int(member.ready)
        for host, _ in self._done:
            if host in count:
                count[host] += 1
        return {host: number for host, number in count.items() if number and host in ready}

    def close(self) -> None:
        """End all actors."""
        for member in self._members.values():
            ray.kill(member.actor)
        self._members.clear()
        self.daemons.clear()
