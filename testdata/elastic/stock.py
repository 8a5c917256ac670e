"""An elastic script of stock Horovod as in its documentation: it counts batches and prints their world."""

import argparse
import time

import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batches", type=int, default=200)
parser.add_argument("--pause", type=float, default=0.05)
args = parser.parse_args()

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train from where the state is."""
    print(f"is rank {hvd.rank()} of {hvd.size()} from batch {state.batch}", flush=True)
    while state.batch < args.batches:
        torch.manual_seed(state.batch)
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(args.pause)
        state.batch += 1
        if hvd.rank() == 0 and state.batch % 10 == 0:
            print(f"batch {state.batch}", flush=True)
        if state.batch % 5 == 0:
            state.commit()


state = hvd.elastic.TorchState(model, optimizer, batch=0)
train(state)
own = sum(p.sum().item() for p in model.parameters())
average = hvd.allreduce(torch.tensor([own]), op=hvd.Average).item()
weights = "same" if abs(average - own) < 1e-5 else "other"
print(f"ends as rank {hvd.rank()} of {hvd.size()} after {state.batch} batches, {weights} weights", flush=True)
