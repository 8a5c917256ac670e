"""A rank of torch.distributed with gloo: every operation, and the step of DistributedDataParallel. Any
launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT will do. BENCH_BACKEND=gorun takes gorun's
backend instead, under gorun; BENCH_STEP=fsdp takes the step of FSDP, with torch 2. See rank.py for the rules.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rank


class Distributed(rank.Ranks):
    def __init__(self, backend: str) -> None:
        if backend == "gorun":
            import gorun.torch.distributed  # noqa: F401 (makes the backend known)
        dist.init_process_group(backend)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def sum(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    def start(self, tensor: torch.Tensor, name: str) -> Callable[[], object]:
        return dist.all_reduce(tensor, async_op=True).wait

    def group(self, tensors: list[torch.Tensor]) -> Callable[[], object]:
        return partial(dist.all_reduce_coalesced, tensors)

    def largest(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)

    def barrier(self) -> None:
        dist.barrier()

    def collective(self, name: str, data: torch.Tensor, result: torch.Tensor) -> Callable[[], object] | None:
        first = self.rank == 0
        parts = list(result.chunk(self.size)) if len(result) else None
        shares = list(data.chunk(self.size)) if len(data) else None
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size

        def reduce() -> None:
            work = data if not first else result.copy_(data)
            dist.reduce(work, 0)

        def exchange() -> None:
            sending = dist.isend(data, after)
            dist.recv(result, before)
            sending.wait()

        run: dict[str, Callable[[], object]] = {
            "allgather": lambda: dist.all_gather(parts, data),
            "alltoall": lambda: dist.all_to_all_single(result, data),
            "barrier": dist.barrier,
            "broadcast": lambda: dist.broadcast(data, 0),
            "gather": lambda: dist.gather(data, parts if first else None, 0),
            "reduce": reduce,
            "reducescatter": lambda: dist.reduce_scatter(result, shares),
            "scatter": lambda: dist.scatter(result, shares if first else None, 0),
            "sendrecv": exchange,
        }
        return run.get(name)


def sharded(model: rank.Model) -> Callable[[], None]:
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)

    def run() -> None:
        model.clear()
        model().backward()

    return run


def backward(model: rank.Model) -> Callable[[], None]:
    # With its best settings: gradients lie in the buckets, and every parameter is used.
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def run() -> None:
        model.clear()
        parallel().backward()

    return run


if __name__ == "__main__":
    torch.set_num_threads(1)
    way = sharded if os.environ.get("BENCH_STEP") == "fsdp" else backward
    rank.main(Distributed(os.environ.get("BENCH_BACKEND", "gloo")), way)
