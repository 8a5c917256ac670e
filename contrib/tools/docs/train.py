"""A small training for the pages that show how to start one: an ordinary Horovod script."""

import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(hvd.rank())
inputs = torch.randn(256, 10)
model = torch.nn.Linear(10, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
    loss.backward()
    optimizer.step()
print(f"rank {hvd.rank()} of {hvd.size()}: loss {loss.item():.3f}")
