"""Elastic jobs in Ray: ranks come and go with the nodes."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import ray

from gorun.discovery import HostDiscovery
from gorun.ray import nodes
from gorun.ray.adapter import (
    LOOK_SECONDS,
    OTHERS_SECONDS,
    BaseParams,
    Callbacks,
    Executable,
    Function,
    common_flags,
    reports,
)
from gorun.ray.team import Team
from gorun.seats import job
from gorun.seats.hostlist import HostList


class RayHostDiscovery(HostDiscovery):
    """The nodes of the Ray cluster, and the slots that each has room for."""

    def __init__(
        self, use_gpu: bool = False, cpus_per_worker: int = 1, gpus_per_worker: int | None = 1
    ) -> None:
        self.use_gpu = use_gpu
        self.cpus_per_worker = cpus_per_worker
        self.gpus_per_worker = gpus_per_worker or 1
        self._names = nodes.Names()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the number of slots of each node that is alive."""
        found = {}
        for node in nodes.alive():
            there = node["Resources"]
            slots = int(there.get("CPU", 0) // self.cpus_per_worker)
            if self.use_gpu:
                slots = min(slots, int(there.get("GPU", 0) // self.gpus_per_worker))
            if slots > 0:
                found[self._names.of(node["NodeID"])] = slots
        return found


@dataclasses.dataclass
class ElasticParams(BaseParams):
    """What an elastic job needs: the least and the most ranks, and how long it waits for the least."""

    min_workers: int = 1
    max_workers: int | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[int] | None = None
    elastic_timeout: int = 600
    override_discovery: bool = True
    elastic: ClassVar[bool] = True

    @property
    def adapter(self) -> type[ElasticAdapter]:
        """Return the class that runs such a job."""
        return ElasticAdapter


class ElasticAdapter:
    """An elastic job."""

    def __init__(self, settings: Any, params: ElasticParams) -> None:
        self._settings = settings
        self._params = params
        if params.override_discovery or getattr(settings, "discovery", None) is None:
            settings.discovery = RayHostDiscovery(
                params.use_gpu, params.cpus_per_worker, params.gpus_per_worker
            )
        self._executable: Executable = (None, None, None)
        self._environ: dict[str, str] = {}

    def start(self, executable: Executable, environ: dict[str, str]) -> None:
        """Keep what workers need. They start with execute()."""
        self._executable, self._environ = executable, environ

    def run_remote(self, fn: Function) -> list[Any]:
        """Raise an error: the workers of an elastic job come and go."""
        raise NotImplementedError("run_remote: elastic jobs have no workers to refer to: use run")

    def execute_single(self, fn: Function) -> Any:
        """Raise an error: the workers of an elastic job come and go."""
        raise NotImplementedError("execute_single: elastic jobs have no lasting rank 0: use execute")

    def shutdown(self) -> None:
        """Do nothing: run() ends everything it starts."""

    def _flags(self, hosts: HostList) -> list[str]:
        params = self._params
        flags = ["--min-np", str(params.min_workers), "--host-discovery-script", hosts.command]
        flags += ["--elastic-timeout", str(params.elastic_timeout)]
        if params.max_workers is not None:
            flags += ["--max-np", str(params.max_workers)]
        if params.reset_limit is not None:
            flags += ["--reset-limit", str(params.reset_limit)]
        if params.cooldown_range is not None:
            flags += ["--blacklist-cooldown-range", *map(str, params.cooldown_range)]
        return flags + common_flags(self._settings)

    def execute(self, fn: Function, callbacks: Callbacks = None) -> list[Any]:
        """Call a function with each worker's executable; return the results by rank."""
        params, token, hosts = self._params, job.new_token(), HostList()
        needs = params.each()
        running: job.Job | None = None
        with reports(callbacks) as (queue, deliver):

            def prepare(actor: Any, slots: int) -> list[Any]:
                environ = dict(self._environ)
                if params.use_gpu:  # those of all ranks of the node, as Horovod does
                    environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(slots * needs["GPU"])))
                first = [actor.update_env_vars.remote(environ)]
                first += [actor.set_queue.remote(queue)] if queue is not None else []
                return [*first, actor.start_executable.remote(*self._executable)]

            team = Team(token, needs, prepare, ray.put(fn))
            limit = time.monotonic() + params.elastic_timeout
            try:
                while running is None or not running.ended():
                    team.follow(self._nodes(), params.max_workers)
                    team.look(LOOK_SECONDS)
                    if running is None and team.unprepared is not None:
                        raise team.unprepared
                    slots = team.slots()
                    hosts.write(slots)
                    deliver()
                    if running is None and sum(slots.values()) >= params.min_workers:
                        running = job.Job(self._flags(hosts), token, team.daemons.start)
                    elif running is None and time.monotonic() > limit:
                        cause = f"; {team.failure}" if team.failure else ""
                        raise TimeoutError(
                            f"run: Ray has room for {sum(slots.values())} workers, and the job begins with "
                            f"{params.min_workers}, after {params.elastic_timeout} s{cause} (hint: a smaller "
                            "min_workers, or more nodes)"
                        )
                    time.sleep(LOOK_SECONDS / 5)
                status = running.wait()
                limit = time.monotonic() + OTHERS_SECONDS
                while status and not team.knows_cause() and time.monotonic() < limit:
                    team.look(LOOK_SECONDS)  # the cause travels by Ray, perhaps after the end of the job
                deliver()
            finally:
                if running is not None:
                    running.stop()
                team.close()
                hosts.close()
        if status:
            cause = f"; {team.failure}" if team.failure else ""
            raise RuntimeError(f"run: {running.failure()}{cause}")
        if not team.results:
            raise RuntimeError("run: the job has ended, and no rank has a result")
        return [value for _, value in sorted(team.results, key=lambda item: item[0])]

    def _nodes(self) -> dict[str, tuple[str, int]]:
        """Return the node and the slots of each host that discovery finds."""
        discovery = self._settings.discovery
        found = discovery.find_available_hosts_and_slots()
        known = {}
        names = getattr(discovery, "_names", nodes.Names())
        for node in nodes.alive():
            known.setdefault(node["NodeManagerAddress"], node["NodeID"])
            known.setdefault(node["NodeManagerHostname"], node["NodeID"])
        known.update({names.of(node["NodeID"]): node["NodeID"] for node in nodes.alive()})
        return {host: (known[host], math.floor(slots)) for host, slots in found.items() if host in known}
