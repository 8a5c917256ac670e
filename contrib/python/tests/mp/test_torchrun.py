"""Run by every rank of a real job: a script for torchrun, which knows nothing of gorun."""

import gc
import os

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="env://")
rank, size = dist.get_rank(), dist.get_world_size()
assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
assert 0 <= int(os.environ["LOCAL_RANK"]) < int(os.environ["LOCAL_WORLD_SIZE"])

total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
assert total.item() == size * (size + 1) / 2
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 2))  # takes over the weights of rank 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()
weights = [torch.zeros(2, 4) for _ in range(size)]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(other, weights[0]) for other in weights)
dist.barrier()
# The model's reducer holds the group too, whose threads would still run while Python ends, and abort.
del model, optimizer, weights
gc.collect()
dist.destroy_process_group()
print(f"rank {rank} of {size}: ok")
