"""Measure elastic training on random data: hosts may come and go while it runs.

    gorun -np 2 --min-np 1 --host-discovery-script ./hosts.sh python3 synthetic_elastic_torch.py

Rank 0 reports the rate of every few commits, so that one sees what a host that comes or goes does to it. In a
job of fixed size it is an ordinary benchmark.
"""

import argparse
import time

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--num-batches-per-commit", type=int, default=5)
parser.add_argument("--num-batches-per-report", type=int, default=10)
parser.add_argument("--num-batches", type=int, default=50, help="in all, however many ranks there are")
parser.add_argument("--lr", type=float, default=0.01, help="for one rank; grows with their number")
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
data = torch.randn(args.batch_size, 64)
labels = torch.randint(10, (args.batch_size,))


def on_state_reset() -> None:
    """Take the learning rate for the number of ranks that there are now."""
    for group in optimizer.param_groups:
        group["lr"] = args.lr * hvd.size()


def rate(batches: int, seconds: float) -> str:
    """Print the speed."""
    return f"samples/sec on {hvd.size()} rank(s): {batches * args.batch_size * hvd.size() / seconds:.1f}"


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train to the end, from the step that a loss interrupted."""
    start, first = time.perf_counter(), state.batch
    begin, done = start, first
    while state.batch < args.num_batches:
        optimizer.zero_grad()
        F.cross_entropy(model(data), labels).backward()
        optimizer.step()
        state.batch += 1
        if state.batch % args.num_batches_per_commit == 0:
            state.commit()
        if state.batch % args.num_batches_per_report == 0 and hvd.rank() == 0:
            now = time.perf_counter()
            print(f"Batch #{state.batch}: {rate(state.batch - done, now - begin)}", flush=True)
            begin, done = now, state.batch
    if hvd.rank() == 0:
        print(f"Total {rate(state.batch - first, time.perf_counter() - start)}", flush=True)


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
state.register_reset_callbacks([on_state_reset])
train(state)
