"""A program of test_gpu_jobs, by gpu_for_cpu.py: a GradScaler whose gradients NCCL reduces.

In one step a gradient of the last rank overflows: all ranks skip that step, and halve their scale.
"""

import torch

import gorun.torch as hvd

STEPS, OVERFLOW, SCALE = 6, 3, 1024.0

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
alone = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
alone.load_state_dict(model.state_dict())
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
other = torch.optim.SGD(alone.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=1000)


def batches(step):
    return torch.arange(size * 16.0).view(size, 2, 8).sin() + step


for step in range(STEPS):
    optimizer.zero_grad()
    loss = model(batches(step)[rank]).square().mean()
    if step == OVERFLOW and rank == size - 1:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    if step == OVERFLOW:
        continue
    other.zero_grad()
    alone(batches(step).flatten(0, 1)).square().mean().backward()
    other.step()
assert scaler.get_scale() == SCALE / 2, scaler.get_scale()
for a, b in zip(model.parameters(), alone.parameters()):
    assert torch.allclose(a, b, atol=1e-6), (a, b)
print(f"rank {rank} of {size}: ok", flush=True)
