"""Functions on the ranks of a job in a Ray cluster, by Horovod's interface for Ray.

    from horovod.ray import RayExecutor

    executor = RayExecutor(RayExecutor.create_settings(timeout_s=30), num_workers=4)
    executor.start()
    results = executor.run(train)   # by rank
    executor.shutdown()

Each rank is an actor. gorun starts a daemon on each node that has one, by another actor and without ssh.
Nodes need gorun and what the functions import.
"""

from __future__ import annotations

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise ImportError(f"horovod.ray needs Ray: pip install ray ({error})") from None

from gorun.ray.elastic import ElasticRayExecutor
from gorun.ray.runner import RayExecutor
from gorun.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
