"""A program of test_gpu_ipc, by gpu_for_cpu.py: an elastic training on a GPU, in which a rank dies.

The last rank of the first world dies in the middle of a backward pass, when other gradients are under way.
"""

import os
import signal

import torch

import gorun.torch as hvd

STEPS, DEATH, RATE = 8, 4, 0.1

torch.set_num_threads(1)
hvd.init()
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(6, 6) for _ in range(4)])
alone = [p.detach().clone().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), num_groups=4)


def loss(parameters, rank, step):
    value = torch.full((2, 6), (rank + 1 + step) / 8.0)
    for weight, bias in zip(parameters[::2], parameters[1::2]):
        value = torch.nn.functional.linear(value, weight, bias)
    return value.square().mean()


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        optimizer.zero_grad()
        if state.step == DEATH and hvd.size() == 3 and hvd.rank() == 2:
            model[1].weight.register_hook(die)
        loss(list(model.parameters()), hvd.rank(), state.step).backward()
        optimizer.step()
        state.sizes = [*state.sizes, hvd.size()]
        state.step += 1
        state.commit()


def expected(sizes):
    """Take the steps that worlds of these sizes take together, in one process."""
    for step, size in enumerate(sizes):
        total = sum(loss(alone, rank, step) for rank in range(size)) / size
        for parameter, gradient in zip(alone, torch.autograd.grad(total, alone)):
            parameter.data -= RATE * gradient


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, sizes=[])
train(state)
assert state.sizes == [3] * DEATH + [2] * (STEPS - DEATH), state.sizes
expected(state.sizes)
for mine, want in zip(model.parameters(), alone):
    assert torch.allclose(mine, want, atol=1e-5), (mine, want)
print(f"rank {hvd.rank()}: trained", flush=True)
