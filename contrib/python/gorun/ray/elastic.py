"""ElasticRayExecutor, the older interface of elastic jobs in Ray."""

from __future__ import annotations

import dataclasses
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from gorun.ray import elastic_v2
from gorun.ray.adapter import Callbacks, calling

__all__ = ["ElasticRayExecutor", "ElasticSettings", "RayHostDiscovery", "TestDiscovery"]


class RayHostDiscovery(elastic_v2.RayHostDiscovery):
    """The nodes of the Ray cluster, and the slots that each has room for."""

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int | None = 1) -> None:
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)


class TestDiscovery(RayHostDiscovery):
    """Some of the nodes of the Ray cluster, others every few seconds, to try an elastic job."""

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)
        self._range, self._seconds, self._verbose = (min_hosts, max_hosts), change_frequency_s, verbose
        self._chosen: set[str] = set()
        self._until = 0.0

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the number of slots of each node that takes part for now."""
        there = super().find_available_hosts_and_slots()
        least, most = (min(count, len(there)) for count in self._range)
        if time.monotonic() >= self._until or len(self._chosen & set(there)) < least:
            self._until = time.monotonic() + self._seconds
            self._chosen = set(random.sample(sorted(there), random.randint(least, most)))
            if self._verbose:
                sys.stderr.write(f"gorun: TestDiscovery chooses {', '.join(sorted(self._chosen))}\n")
        return {host: slots for host, slots in there.items() if host in self._chosen}


@dataclasses.dataclass
class ElasticSettings:
    """Settings of an elastic job. ssh_identity_file has no effect: there is no ssh."""

    min_num_proc: int = 1
    max_num_proc: int | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[int] | None = None
    elastic_timeout: int = 600
    timeout_s: int = 30
    ssh_identity_file: str | None = None
    nics: Any = None
    verbose: int = 1
    discovery: Any = None
    elastic: bool = True


class ElasticRayExecutor:
    """An elastic job on all nodes of the Ray cluster, as they come and go.

    A function keeps its state in hvd.elastic, and continues when nodes or actors are lost.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: int | None = None,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        nics: Any = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """Return settings. elastic_timeout is HOROVOD_ELASTIC_TIMEOUT, or 600 seconds."""
        seconds = elastic_timeout or int(os.environ.get("HOROVOD_ELASTIC_TIMEOUT", 600))
        known = {field.name for field in dataclasses.fields(ElasticSettings)}
        more = {name: value for name, value in kwargs.items() if name in known}
        return ElasticSettings(
            min_np or min_num_proc, max_np or max_num_proc, reset_limit, elastic_timeout=seconds,
            timeout_s=timeout_s, ssh_identity_file=ssh_identity_file, nics=nics, **more,
        )  # fmt: skip

    def __init__(
        self,
        settings: Any,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: Mapping[str, Any] | None = None,
        override_discovery: bool = True,
    ) -> None:
        self.settings = settings
        self._environ = {str(name): str(value) for name, value in (env_vars or {}).items()}
        params = elastic_v2.ElasticParams(
            cpus_per_slot, use_gpu, gpus_per_slot, settings.min_num_proc, settings.max_num_proc,
            settings.reset_limit, settings.cooldown_range, settings.elastic_timeout, override_discovery,
        )  # fmt: skip
        self._adapter = elastic_v2.ElasticAdapter(settings, params)

    def start(self) -> None:
        """Get ready. The workers start with run()."""
        self._adapter.start((None, None, None), self._environ)

    def run(self, worker_fn: Callable[[], Any], callbacks: Callbacks = None) -> list[Any]:
        """Call a function on each worker; return by rank the results of those that end with the job.

        callbacks get what rank 0 passes to horovod.ray.ray_logger.log(), meanwhile.
        """
        return self._adapter.execute(calling(worker_fn, None, None), callbacks)
