"""A program of test_gpu_ipc, by gpu_for_cpu.py: horovod.torch on tensors of a GPU that ranks share."""

import copy

import torch

import gorun.torch as hvd
from gorun.gpu import ipc

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
calls, real = [], ipc.Ipc.allreduce


def note(self, name, *more, **options):
    calls.append(name)
    return real(self, name, *more, **options)


ipc.Ipc.allreduce = note
assert hvd.allreduce(torch.tensor([rank + 1.0, 4]), op=hvd.Sum).tolist() == [3, 8]
assert hvd.allreduce(torch.tensor([rank + 1, 4], dtype=torch.bfloat16)).tolist() == [1.5, 4]
assert hvd.broadcast(torch.tensor([rank]), 1).item() == 1
assert hvd.allgather(torch.tensor([rank])).tolist() == [0, 1]
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 2))
alone = copy.deepcopy(model)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
other = torch.optim.SGD(alone.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    other.zero_grad()
    model(torch.full((2, 6), rank + step / 2.0)).square().mean().backward()
    sum(alone(torch.full((2, 6), r + step / 2.0)).square().mean() / size for r in range(size)).backward()
    optimizer.step()
    other.step()
for a, b in zip(model.parameters(), alone.parameters()):
    assert torch.allclose(a, b, atol=1e-6), (a, b)
print(f"rank {rank}: by ipc {len(calls)}", flush=True)
