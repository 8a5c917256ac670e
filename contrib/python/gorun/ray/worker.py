"""The actors of a job: one for each rank, and one for the daemon of each node."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import ray

from gorun.ray import ray_logger
from gorun.seats import place, step


class BaseHorovodWorker:
    """The actor of a rank. Functions run in it, one after the other."""

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        self._rank = world_rank
        self._place: place.Place | None = None
        os.environ["HOROVOD_RANK"] = str(world_rank)
        os.environ["HOROVOD_SIZE"] = str(world_size)

    def __repr__(self) -> str:
        """Return what Ray puts before each line of output, and into the text of errors."""
        return f"rank {self._rank}"

    def hostname(self) -> str:
        """Return the name of the machine."""
        return socket.gethostname()

    def node_id(self) -> str:
        """Return Ray's number of the node."""
        return str(ray.get_runtime_context().get_node_id())

    def get_gpu_ids(self) -> list[str]:
        """Return Ray's GPUs for this worker."""
        return list(ray.get_runtime_context().get_accelerator_ids().get("GPU", []))

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        """Set variables of the environment."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """Return the environment."""
        return dict(os.environ)

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the object that execute() passes to functions."""
        if executable_cls is not None:
            self.executable = executable_cls(*(executable_args or ()), **(executable_kwargs or {}))

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """Call a function with the executable. If it fails, this rank leaves: no other waits for it."""
        try:
            return func(self.executable)
        except SystemExit as error:  # Ray ends the process
            if self._place is not None:
                self._place.leave(place.status_of(error), f"SystemExit: {error}")
            raise
        except BaseException:
            place.quit_world()
            raise

    def set_queue(self, queue: Any) -> None:
        """Let ray_logger.log() reach the callbacks of run()."""
        ray_logger.configure(queue)

    def wait_for(self, token: str, host: str, index: int) -> None:
        """Wait for gorun's rank from now on, under this name."""
        self._place = place.Place(token, host, index)

    def attach(self, seconds: float | None = None) -> int:
        """Become a rank of the job, and return its number."""
        assert self._place is not None
        self._rank = self._place.take(seconds)
        return self._rank

    def reset(self) -> None:
        """Leave the world that a failed function has left behind. The next hvd.init() enters another."""
        place.quit_world()

    def leave(self) -> None:
        """Leave the job."""
        if self._place is not None:
            self._place.leave()

    def run_attached(self, func: Callable[[Any], Any]) -> tuple[int, Any]:
        """Become a rank as soon as there is one, and call a function; return the last rank and the result.

        leave() follows when the result has arrived: the job does not end before that.
        """
        assert self._place is not None
        self.attach()
        try:
            result = func(self.executable)
        except BaseException as error:
            self._place.leave(place.status_of(error), f"{type(error).__name__}: {error}")
            raise
        self._rank = place.last_rank()
        place.quit_world()
        return self._rank, result


class NodeDaemon:
    """The actor that starts gorun on a node."""

    def __init__(self, host: str) -> None:
        self._host = host

    def __repr__(self) -> str:
        return f"gorun on {self._host}"

    def ready(self) -> bool:
        """Return True."""
        return True

    def run(self, order: bytes) -> str:
        """Run a daemon until its job ends; return why it failed, or an empty text."""
        return step.run(order, self._host)
