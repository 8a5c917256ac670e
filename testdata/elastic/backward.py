"""Backward() ends in the middle, of what gorun found. The rank says where it was told, and must be able to exit.

usage: backward.py death | passes: rank 1 dies, or gradients are computed more often than was said
"""

import gc
import os
import sys
from typing import Any

import gorun.torch as hvd
import torch
from torch import nn

torch.set_num_threads(1)
how = sys.argv[1]
dies = False


class Dies(torch.autograd.Function):
    """Nothing but the place where rank 1 dies."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        if dies and hvd.rank() == 1:
            os._exit(1)
        return grad


# Backward goes through the side last: it lies in torch's queue while the others fail.
hvd.init()
side, first, norm, last = nn.Linear(4, 8), nn.Linear(4, 8), hvd.SyncBatchNorm(8), nn.Linear(8, 8)
net = nn.ModuleList([side, first, norm, last])
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())


def loss() -> torch.Tensor:
    """Return a loss to which both ways lead."""
    x = torch.randn(3, 4)
    return (side(x) + last(Dies.apply(norm(first(x))))).square().mean()


where = "nowhere"
try:
    for step in range(4):
        dies = step == 3 and how == "death"
        where = "backward"
        for _ in range(2 if step == 3 and how == "passes" else 1):
            loss().backward()
        where = "step"
        optimizer.step()
        optimizer.zero_grad()
except (hvd.HorovodInternalError, AssertionError):
    print("told in", where, flush=True)
gc.collect()  # as a program that lives longer does: only torch's queue now has what backward() left behind
