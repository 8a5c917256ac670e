"""RayExecutor: a job of fixed size, or elastic, whose ranks are actors of Ray."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gorun import absent
from gorun.ray.adapter import Callbacks, Function, calling
from gorun.ray.elastic_v2 import ElasticAdapter, ElasticParams
from gorun.ray.static import StaticAdapter, StaticParams

__all__ = ["ElasticAdapter", "ElasticParams", "MiniSettings", "RayExecutor", "StaticAdapter", "StaticParams"]

END_SECONDS = 20.0  # for the workers to end after Ctrl-C


@dataclasses.dataclass
class MiniSettings:
    """Settings of a job. ssh_port, ssh_identity_file and key have no effect: there is no ssh."""

    nics: Any = None
    verbose: int = 1
    key: bytes | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: int = 300
    placement_group_timeout_s: int = 100
    elastic: bool = False

    @property
    def start_timeout(self) -> int:
        """Return timeout_s, the seconds that the start may take."""
        return self.timeout_s


class RayExecutor:
    """A job whose ranks are actors of Ray.

    The job has num_workers ranks, packed onto as few nodes as possible, or num_workers_per_host ranks on each
    of num_hosts nodes. With min_workers it is elastic, and has as many ranks as the cluster has room for, up
    to max_workers. Each rank takes cpus_per_worker of Ray's CPUs and, with use_gpu, gpus_per_worker GPUs. If
    the caller runs in a placement group, so do the workers, unless use_current_placement_group is False.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: int = 100,
        nics: Any = None,
    ) -> MiniSettings:
        """Return settings: how long the ranks may take to start, and Ray to find room for them.

        nics names the network interfaces between nodes. ssh_identity_file and ssh_str have no effect.
        """
        return MiniSettings(
            nics=nics, timeout_s=timeout_s, ssh_identity_file=ssh_identity_file,
            placement_group_timeout_s=placement_group_timeout_s,
        )  # fmt: skip

    def __init__(
        self,
        settings: Any,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        if max_workers and (not min_workers or min_workers <= 0):
            raise ValueError("max_workers needs a positive min_workers: only elastic jobs have a range")
        if min_workers and num_workers:
            raise ValueError(
                "min_workers makes the job elastic, and num_workers fixes its size: give one of them"
            )
        self.params: StaticParams | ElasticParams
        if min_workers is not None:
            self.params = ElasticParams(
                cpus_per_worker=cpus_per_worker, use_gpu=use_gpu, gpus_per_worker=gpus_per_worker,
                min_workers=min_workers, max_workers=max_workers, reset_limit=reset_limit,
                cooldown_range=cooldown_range, elastic_timeout=elastic_timeout,
                override_discovery=override_discovery,
            )  # fmt: skip
        else:
            if (num_workers is None) == (num_hosts is None):
                raise ValueError("give num_workers, or num_hosts with num_workers_per_host")
            self.params = StaticParams(
                cpus_per_worker=cpus_per_worker, use_gpu=use_gpu, gpus_per_worker=gpus_per_worker,
                num_workers=num_workers, num_hosts=num_hosts, num_workers_per_host=num_workers_per_host,
                use_current_placement_group=use_current_placement_group,
            )  # fmt: skip
            if self.params.count() < 1:
                raise ValueError(f"a job has at least 1 worker, not {self.params.count()}")
        self.settings = settings
        self.settings.elastic = self.params.elastic
        self._adapter: Any = None
        self._is_remote = False

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the workers. Each makes an executable_cls, if there is one, for execute()."""
        if self._adapter is not None:
            raise RuntimeError("start: the workers run already (hint: shutdown() comes first)")
        adapter: Any
        self._is_remote = bool(ray.util.client.ray.is_connected())
        if self._is_remote:  # this machine may not reach the nodes
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            made = ray.remote(self.params.adapter)
            adapter = made.options(  # type: ignore[attr-defined]
                num_cpus=0, max_concurrency=2, scheduling_strategy=here
            ).remote(self.settings, self.params)
        else:
            adapter = self.params.adapter(self.settings, self.params)
        environ = {str(name): str(value) for name, value in (extra_env_vars or {}).items()}
        self._call_of(adapter, "start", (executable_cls, executable_args, executable_kwargs), environ)
        self._adapter = adapter

    def execute(self, fn: Function, callbacks: Callbacks = None) -> list[Any]:
        """Call a function with each worker's executable; return the results by rank."""
        return self._call("execute", fn, callbacks)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Callbacks = None,
    ) -> list[Any]:
        """Call a function on each worker; return the results by rank."""
        return self._call("execute", calling(fn, args, kwargs), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a function on each worker; return the references to the results by rank, at once."""
        return self._call("run_remote", calling(fn, args, kwargs))

    def execute_single(self, fn: Function) -> Any:
        """Call a function with the executable of rank 0; return its result."""
        return self._call("execute_single", fn)

    def shutdown(self) -> None:
        """End the job and its actors."""
        if self._adapter is not None:
            self._call("shutdown")
            self._adapter = None

    def _call(self, method: str, *args: Any) -> Any:
        if self._adapter is None:
            raise RuntimeError(f"{method}: start() comes first")
        return self._call_of(self._adapter, method, *args)

    def _call_of(self, adapter: Any, method: str, *args: Any) -> Any:
        function = getattr(adapter, method)
        if not self._is_remote:
            return function(*args)
        try:
            return ray.get(function.remote(*args))
        except KeyboardInterrupt:
            ray.wait([adapter.shutdown.remote()], timeout=END_SECONDS)  # beside the call that is interrupted
            ray.kill(adapter)
            self._adapter = None
            raise


def __getattr__(name: str) -> Any:
    if name == "Coordinator":
        return absent.ray_train  # which raises the reason
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
