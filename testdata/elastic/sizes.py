"""Train in epochs and print the size of the world in each, in the format of Horovod's own tests of elastic jobs.

It needs nothing but Horovod's interface, so that what gorun makes of a scenario can be compared with stock Horovod.
"""

import argparse
import os
import sys
import time

import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--exit", default="", help="these ranks of the first world (0,2) exit with status 1 in epoch 1")
parser.add_argument("--wait", default="", help="EPOCH=SIZE[,…]: that epoch lasts until the world has that size")
args = parser.parse_args()

torch.set_num_threads(1)
hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0, worlds=1)
state.register_reset_callbacks([lambda: setattr(state, "worlds", state.worlds + 1)])
exits = {int(rank) for rank in args.exit.split(",") if rank}
sizes = dict(map(int, part.split("=")) for part in args.wait.split(",") if part)


def lasts() -> bool:
    """Report whether the present epoch has more batches."""
    return state.batch < 5 or sizes.get(state.epoch, hvd.size()) != hvd.size()


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    while state.epoch < args.epochs:
        while lasts():
            if state.epoch == 1 and state.worlds == 1 and hvd.rank() in exits:
                os._exit(1)
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            time.sleep(0.05)
            state.batch += 1
            state.commit()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: size {hvd.size()}, world {state.worlds}", flush=True)
        state.epoch, state.batch = state.epoch + 1, 0
        state.commit()


train(state)
sys.exit(0)
