"""Jobs of fixed size in Ray."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Callable, ClassVar

import ray
from ray.exceptions import RayActorError
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gorun.exceptions import HorovodInternalError
from gorun.ray import nodes
from gorun.ray.adapter import (
    LOOK_SECONDS,
    OTHERS_SECONDS,
    BaseParams,
    Callbacks,
    Daemons,
    Executable,
    Function,
    common_flags,
    first_line,
    reports,
    start_seconds,
)
from gorun.ray.worker import BaseHorovodWorker
from gorun.seats import job, place

LEAVE_SECONDS = 10.0


@dataclasses.dataclass
class StaticParams(BaseParams):
    """What a job of fixed size needs: num_workers, or num_hosts with num_workers_per_host each."""

    num_workers: int | None = None
    num_hosts: int | None = None
    num_workers_per_host: int = 1
    use_current_placement_group: bool = True
    elastic: ClassVar[bool] = False

    @property
    def adapter(self) -> type[StaticAdapter]:
        """Return the class that runs such a job."""
        return StaticAdapter

    def count(self) -> int:
        """Return the number of workers."""
        if self.num_workers is not None:
            return self.num_workers
        return (self.num_hosts or 0) * self.num_workers_per_host

    def bundles(self) -> list[dict[str, int]]:
        """Return what Ray has to set aside: for each worker, or for those of each host."""
        if self.num_workers is not None:
            return [self.each() for _ in range(self.num_workers)]
        together = {kind: each * self.num_workers_per_host for kind, each in self.each().items()}
        return [together for _ in range(self.num_hosts or 0)]

    def describe(self) -> str:
        """Return what is asked for, for messages."""
        each = " and ".join(f"{count} {kind}" for kind, count in self.each().items())
        if self.num_workers is not None:
            return f"{self.num_workers} workers with {each} each"
        return f"{self.num_hosts} nodes with {self.num_workers_per_host} workers of {each} each"


@dataclasses.dataclass
class _Worker:
    """The actor of a rank, and where it is."""

    actor: Any
    node: str
    host: str = ""


class StaticAdapter:
    """A job of fixed size."""

    def __init__(self, settings: Any, params: StaticParams) -> None:
        self._settings = settings
        self._params = params
        self._group: PlacementGroup | None = None
        self._own_group = False
        self._workers: list[_Worker] = []  # by rank
        self._daemons = Daemons()
        self._job: job.Job | None = None
        self._calls: list[Any] = []  # references to the results of calls that may not have ended

    @property
    def workers(self) -> list[Any]:
        """Return the actors by rank."""
        return [worker.actor for worker in self._workers]

    def start(self, executable: Executable, environ: dict[str, str]) -> None:
        """Start the workers."""
        if self._workers:
            raise RuntimeError("start: the workers run already (hint: shutdown() comes first)")
        try:
            self._find_room()
            self._make_workers()
            self._start_job()
            ray.get([actor.update_env_vars.remote(environ) for actor in self.workers])
            self._share_gpus()
            ray.get([actor.start_executable.remote(*executable) for actor in self.workers])
        except BaseException:
            self._end()
            raise

    def _find_room(self) -> None:
        """Have Ray set aside what the workers need."""
        params = self._params
        current = get_current_placement_group() if params.use_current_placement_group else None
        if current is not None:
            self._group, self._own_group = current, False
            return
        self._group = placement_group(
            params.bundles(), strategy="PACK" if params.num_workers else "STRICT_SPREAD"
        )
        self._own_group = True
        seconds = getattr(self._settings, "placement_group_timeout_s", 100)
        if ray.wait([self._group.ready()], timeout=seconds)[0]:
            return
        free = ray.available_resources()
        there = ", ".join(
            f"{nodes.number(free.get(kind, 0))} {kind}" for kind in ("CPU", "GPU") if kind in params.each()
        )
        raise TimeoutError(
            f"start: Ray found no room for {params.describe()} within {seconds} s: its "
            f"{len(nodes.alive())} nodes have {there} free (hint: ask for fewer, add nodes, or end what "
            "holds them: ray status shows it)"
        )

    def _make_workers(self) -> None:
        """Make the actors, and put them in the order of their ranks: node by node."""
        params, count = self._params, self._params.count()
        bundles = params.bundles()
        table = placement_group_table(self._group)["bundles_to_node_id"] if self._own_group else {}
        # In its own group a worker has its bundle, or one with the others of its host, and its node is known.
        places = (
            [index * len(bundles) // count for index in range(count)] if self._own_group else [-1] * count
        )
        if self._own_group:
            places = nodes.grouped(places, lambda bundle: table[bundle])
        made = ray.remote(BaseHorovodWorker)
        needs = params.each()
        workers = []
        for rank, bundle in enumerate(places):
            where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
            actor = made.options(  # type: ignore[attr-defined]
                num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), scheduling_strategy=where
            ).remote(rank, count)
            workers.append(_Worker(actor, table.get(bundle, "")))
        self._workers = workers
        seconds = getattr(self._settings, "placement_group_timeout_s", 100)
        ids = [worker.actor.node_id.remote() for worker in workers]
        ready, _ = ray.wait(ids, num_returns=count, timeout=seconds)
        if len(ready) < count:
            raise TimeoutError(
                f"start: Ray started {len(ready)} of {count} workers within {seconds} s: the placement group "
                "has no room for the others (hint: a larger one, or use_current_placement_group=False)"
            )
        for worker, node in zip(workers, ray.get(ids)):
            worker.node = node
        names = nodes.Names()
        for worker in workers:
            worker.host = names.of(worker.node)
        self._workers = nodes.grouped(workers, lambda worker: worker.host)

    def _start_job(self) -> None:
        token, counts, waiting = job.new_token(), {}, []
        for worker in self._workers:
            index = counts.setdefault(worker.host, 0)
            counts[worker.host] += 1
            waiting.append(worker.actor.wait_for.remote(token, worker.host, index))
        agents = {worker.host: worker.node for worker in self._workers}
        ray.get(waiting + [self._daemons.add(host, node).ready.remote() for host, node in agents.items()])
        flags = ["-np", str(len(self._workers)), "-H", ",".join(f"{host}:{n}" for host, n in counts.items())]
        self._job = job.Job(flags + common_flags(self._settings), token, self._daemons.start)
        seconds = start_seconds(self._settings)
        attached = [worker.actor.attach.remote(seconds + job.STOP_SECONDS) for worker in self._workers]
        while len(ray.wait(attached, num_returns=len(attached), timeout=0.2)[0]) < len(attached):
            if self._job.ended():
                self._job.wait()
                raise RuntimeError(f"start: {self._job.failure()}")
        try:
            ranks = ray.get(attached)
        except place.NoSeat as error:
            raise RuntimeError(f"start: {first_line(error)}") from None
        assert ranks == list(range(len(ranks))), ranks

    def _share_gpus(self) -> None:
        """Let workers see all GPUs of their node's, in the order of the local ranks, as Horovod does."""
        if not self._params.use_gpu:
            return
        own = ray.get([worker.actor.get_gpu_ids.remote() for worker in self._workers])
        all_of: dict[str, list[str]] = {}
        for worker, gpus in zip(self._workers, own):
            all_of.setdefault(worker.host, []).extend(map(str, gpus))
        ray.get([
            worker.actor.update_env_vars.remote({"CUDA_VISIBLE_DEVICES": ",".join(all_of[worker.host])})
            for worker in self._workers
        ])  # fmt: skip

    def execute(self, fn: Function, callbacks: Callbacks = None) -> list[Any]:
        """Call a function with each worker's executable; return the results by rank."""
        with reports(callbacks) as (queue, deliver):
            if queue is None:
                return self._results(self._submit(fn))
            for actor in self.workers:
                actor.set_queue.remote(queue)
            try:
                return self._results(self._submit(fn), deliver)
            finally:
                for actor in self.workers:
                    actor.set_queue.remote(None)

    def run_remote(self, fn: Function) -> list[Any]:
        """Call a function with each worker's executable; return references to the results, by rank."""
        return self._submit(fn)

    def execute_single(self, fn: Function) -> Any:
        """Call a function with the executable of rank 0; return its result."""
        return self._results(self._submit(fn, 1))[0]

    def _submit(self, fn: Function, count: int | None = None) -> list[Any]:
        """Begin a call on the first workers, in a new world if an earlier one has failed.

        It returns the references to the results.
        """
        if not self._workers:
            raise RuntimeError(
                "run: there are no workers: an interrupted call ends them (hint: shutdown(), then start())"
            )
        ended = [reference for reference in self._calls if ray.wait([reference], timeout=0)[0]]
        self._calls = [reference for reference in self._calls if reference not in ended]
        if any(failure(reference) is not None for reference in ended):
            for worker in self._workers:  # before the function, as an actor does one after the other
                worker.actor.reset.remote()
        function = ray.put(fn)
        begun = [worker.actor.execute.remote(function) for worker in self._workers[:count]]
        self._calls += begun
        return begun

    def _results(self, references: list[Any], meanwhile: Callable[[], None] | None = None) -> list[Any]:
        """Wait for all results, or for the first failure and its consequences elsewhere; raise the cause.

        It calls meanwhile again and again, the last time after the end. If that fails, or Ctrl-C ends the
        wait, the workers end: Ray cannot interrupt what they run.
        """
        left, limit, failures = list(references), math.inf, []
        try:
            while left and time.monotonic() < limit:
                most = min(limit - time.monotonic(), LOOK_SECONDS if meanwhile else math.inf)
                ended, left = ray.wait(left, timeout=None if math.isinf(most) else max(most, 0.0))
                for reference in ended:
                    error = failure(reference)
                    if error is not None:
                        failures.append((references.index(reference), error))
                        limit = min(limit, time.monotonic() + OTHERS_SECONDS)
                if meanwhile:
                    meanwhile()
        except BaseException:
            self._end()
            raise
        if not failures:
            return ray.get(references)
        rank, error = next(((r, e) for r, e in failures if is_cause(e)), failures[0])
        raise self._named(rank, error)

    def _named(self, rank: int, error: Exception) -> Exception:
        """Return the error of a rank as the caller gets it."""
        worker = self._workers[rank]
        assert self._job is not None
        if not is_cause(error) and self._job.wait(LEAVE_SECONDS) is not None:
            lost = RuntimeError(f"run: {self._job.failure()}")  # Ray has not noticed yet that a node is gone
            lost.__cause__ = error
            return lost
        if not isinstance(error, RayActorError):
            if hasattr(error, "add_note"):
                error.add_note(f"rank {rank} on {worker.host} raised this")
            return error
        self._job.wait(LEAVE_SECONDS)
        text = f"rank {rank} on {worker.host}: its actor died: {first_line(error)}"
        return RuntimeError(
            f"{text}; the job has ended: {self._job.failure()}" if self._job.ended() else text
        )

    def shutdown(self) -> None:
        """End the job and its actors, and what they run."""
        busy = any(not ray.wait([reference], timeout=0)[0] for reference in self._calls)
        if self._job is not None and not self._job.ended() and not busy:
            left = [worker.actor.leave.remote() for worker in self._workers]
            ray.wait(left, num_returns=len(left), timeout=LEAVE_SECONDS)
            self._job.wait(LEAVE_SECONDS)
        self._end()

    def _end(self) -> None:
        if self._job is not None:
            self._job.stop()
        for worker in self._workers:
            ray.kill(worker.actor)
        self._daemons.clear()
        if self._group is not None and self._own_group:
            remove_placement_group(self._group)
        self._job, self._group, self._workers, self._calls = None, None, [], []


def failure(reference: Any) -> Exception | None:
    """Return the error of a call that has ended, None if it has none or has not ended."""
    if not ray.wait([reference], timeout=0)[0]:
        return None
    try:
        ray.get(reference)
    except Exception as error:
        return error
    return None


def is_cause(error: Exception) -> bool:
    """Report whether an error is no consequence of another rank's."""
    return not isinstance(error, HorovodInternalError)
