"""Train with torch and an ExactSampler; all ranks but rank 0 kill themselves in step --kill. Print the weights."""

import argparse
import os
import signal
import time

import gorun.torch as hvd
import torch
from gorun.sampling import ExactSampler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--kill", type=int, default=-1)
args = parser.parse_args()

SAMPLES, STEPS = 101, 80
hvd.init()
torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
data, labels = torch.randn(SAMPLES, 4), torch.randn(SAMPLES, 1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = ExactSampler(SAMPLES, batch_size=5)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train to the end."""
    first = state.step == 0
    while state.step < STEPS:
        for samples in sampler.batches():
            loss = (model(data[samples]) - labels[samples]).square().mean()
            (loss * sampler.weight()).backward()
            if first and hvd.rank() > 0 and state.step == args.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            if sampler.completes():
                optimizer.step()
                optimizer.zero_grad()
                state.step += 1
            sampler.advance()
            state.commit()
            time.sleep(0.02)
            if state.step == STEPS:
                break
        else:
            sampler.next_epoch()


train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0))
if hvd.rank() == 0:
    print(hvd.size(), sampler.epoch, sampler.position, *(f"{x:.9f}" for x in model.weight.flatten().tolist()))
