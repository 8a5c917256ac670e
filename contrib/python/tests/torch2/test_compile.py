"""Run by every rank of a real job, with torch 2: DistributedOptimizer with a compiled module."""

import torch
from torch import nn

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 4))
compiled = torch.compile(model, backend="aot_eager")  # the tracing of the real thing, without its compiler
hvd.broadcast_parameters(compiled.state_dict(), 0)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(compiled.parameters()), compiled.named_parameters())
for _ in range(4):
    optimizer.zero_grad()
    compiled(torch.randn(4, 8) + hvd.rank()).square().mean().backward()
    optimizer.step()
flat = torch.cat([p.detach().flatten() for p in model.parameters()])[None]
assert torch.equal(hvd.allgather(flat), flat.expand(hvd.size(), -1))
hvd.shutdown()
print("ok")
