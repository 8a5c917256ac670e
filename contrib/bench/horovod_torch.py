"""A rank of a horovod.torch program: allreduce, and the step of DistributedOptimizer. Under gorun it is
gorun's drop-in that it imports, under horovodrun stock Horovod. See rank.py for the rules.
"""

from __future__ import annotations

from functools import partial
from typing import Callable

import horovod.torch as hvd
import torch

import rank


class Horovod(rank.Ranks):
    def __init__(self) -> None:
        hvd.init()
        self.rank, self.size = hvd.rank(), hvd.size()

    def sum(self, tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, name="bench.sum", op=hvd.Sum)

    def start(self, tensor: torch.Tensor, name: str) -> Callable[[], object]:
        return partial(hvd.synchronize, hvd.allreduce_async_(tensor, name=name, op=hvd.Sum))

    def group(self, tensors: list[torch.Tensor]) -> Callable[[], object]:
        return partial(hvd.grouped_allreduce_, tensors, name="bench.group", op=hvd.Sum)

    def largest(self, tensor: torch.Tensor) -> None:
        # Horovod's Max came late; a gathering works with every version.
        gathered = hvd.allgather(tensor.reshape(1, -1), name="bench.largest")
        tensor.copy_(gathered.max(dim=0).values)

    def barrier(self) -> None:
        hvd.allreduce(torch.zeros(1), name="bench.barrier")


def backward(model: rank.Model) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    parallel = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def run() -> None:
        model.clear()
        model().backward()
        parallel.synchronize()

    return run


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank.main(Horovod(), backward)
