"""Train by DDP on gorun's engine; a rank of the first world dies. Ranks print their end, a hash of the weights."""

import hashlib
import os
import signal
import sys

import gorun.torch as hvd
import torch
from gorun.torch.distributed import elastic
from torch.nn.parallel import DistributedDataParallel

STEPS, DEATH = 40, 17

torch.set_num_threads(1)
torch.manual_seed(1)
hvd.init()
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
worlds = []


@elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    worlds.append(state.step)
    parallel = DistributedDataParallel(model)
    while state.step < STEPS:
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(state.step)  # equal on all ranks: so is the mean
        loss = parallel(torch.randn(4, 8, generator=generator)).square().mean()
        if state.step == DEATH and hvd.rank() == 1 and len(worlds) == 1 and "alone" not in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        state.step += 1
        if state.step % 5 == 0:
            state.commit()


train(hvd.elastic.TorchState(model, optimizer, step=0))
weights = hashlib.sha256(model.weight.detach().numpy().round(4).tobytes()).hexdigest()[:16]
print(f"done rank {hvd.rank()} of {hvd.size()}: began at {worlds} weights {weights}", flush=True)
