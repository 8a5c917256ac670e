"""A rank of torch.distributed with gloo: allreduce, and the step of DistributedDataParallel. Any launcher
that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT will do. See rank.py for the rules.
"""

from __future__ import annotations

from typing import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rank


class Gloo(rank.Ranks):
    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def sum(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    def largest(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)

    def barrier(self) -> None:
        dist.barrier()


def backward(model: rank.Model) -> Callable[[], None]:
    # With its best settings: gradients lie in the buckets, and every parameter is used.
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def run() -> None:
        parallel.zero_grad()
        parallel().backward()

    return run


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank.main(Gloo(), backward)
