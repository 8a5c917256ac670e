"""What the kinds of executors have in common."""

from __future__ import annotations

import dataclasses
import math
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty
from typing import Any, Callable, Optional

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gorun.ray.worker import NodeDaemon

LOOK_SECONDS = 0.5  # between two looks at what Ray has: nodes, and reports for callbacks
OTHERS_SECONDS = 3.0  # for other ranks to end after one has failed, which may be the cause or a consequence


Function = Callable[[Any], Any]  # of an executable
Callbacks = Optional[Sequence[Callable[[Any], Any]]]  # of reports
Executable = tuple[Optional[Callable[..., Any]], Optional[Sequence[Any]], Optional[Mapping[str, Any]]]


@dataclasses.dataclass
class BaseParams:
    """What each worker needs."""

    cpus_per_worker: int = 1
    use_gpu: bool = False
    gpus_per_worker: int | None = None

    def __post_init__(self) -> None:
        if self.gpus_per_worker and not self.use_gpu:
            raise ValueError("gpus_per_worker is set, but use_gpu is False: set use_gpu=True as well")
        if self.use_gpu and self.gpus_per_worker is not None and self.gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker must be >= 1: got {self.gpus_per_worker}")
        self.gpus_per_worker = self.gpus_per_worker or int(self.use_gpu)

    def each(self) -> dict[str, int]:
        """Return what a worker needs, in Ray's words."""
        return {"CPU": self.cpus_per_worker, **({"GPU": self.gpus_per_worker or 1} if self.use_gpu else {})}


def calling(
    fn: Callable[..., Any], args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Function:
    """Return fn(*args, **kwargs) as a function of an executable."""
    positional, named = tuple(args or ()), dict(kwargs or {})
    return lambda _: fn(*positional, **named)


class Daemons:
    """The actors that start gorun on nodes, by the launcher's name of the node."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}

    def add(self, host: str, node_id: str) -> Any:
        """Make the actor of a node. Its method ready ends when it runs."""
        where = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
        actor = ray.remote(NodeDaemon).options(num_cpus=0, scheduling_strategy=where).remote(host)  # type: ignore[attr-defined]
        self._actors[host] = actor
        return actor

    def remove(self, host: str) -> None:
        """End the actor of a node."""
        actor = self._actors.pop(host, None)
        if actor is not None:
            ray.kill(actor)

    def clear(self) -> None:
        """End all of them."""
        for host in list(self._actors):
            self.remove(host)

    def start(self, host: str, order: bytes, ended: Callable[[str], None]) -> None:
        """Start gorun on a node: a seats.job.StartDaemon."""
        actor = self._actors.get(host)
        if actor is None:
            ended("Ray has no such node any more")
            return

        def wait() -> None:
            try:
                why = ray.get(actor.run.remote(order))
            except RayActorError as error:
                why = f"the actor for gorun died: {first_line(error)}"
            except Exception as error:  # Ray itself is down
                why = first_line(error)
            ended(why)

        threading.Thread(target=wait, name=f"gorun: daemon of {host}", daemon=True).start()


@contextmanager
def reports(callbacks: Callbacks) -> Iterator[tuple[Queue | None, Callable[[], None]]]:
    """Make a queue for ray_logger.log(), and a function that passes on what is in it.

    The queue is on this process's node, so that it is lost with no other one. A job goes on without it.
    """
    if not callbacks:
        yield None, lambda: None
        return
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
    lost = False

    def deliver() -> None:
        nonlocal lost
        while not lost:
            try:
                report = queue.get_nowait()
            except Empty:
                return
            except RayError as error:
                lost = True
                sys.stderr.write(f"gorun: warning: callbacks get no more reports: {first_line(error)}\n")
                return
            for callback in callbacks:
                callback(report)

    try:
        yield queue, deliver
    finally:
        queue.shutdown()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def start_seconds(settings: Any) -> float:
    """Return how long the start may take."""
    seconds = getattr(settings, "timeout_s", None)
    if seconds is None:
        seconds = getattr(settings, "start_timeout", None)
    return float(getattr(seconds, "_timeout", seconds) or 30)


def common_flags(settings: Any) -> list[str]:
    """Return gorun's flags for a settings object."""
    flags = ["--start-timeout", f"{math.ceil(start_seconds(settings))}"]
    nics = getattr(settings, "nics", None)
    if nics:
        flags += ["--network-interfaces", nics if isinstance(nics, str) else ",".join(sorted(nics))]
    if (getattr(settings, "verbose", 1) or 0) > 1:
        flags.append("-v")
    return flags
