"""Train on scikit-learn's handwritten digits while hosts come and go: an ordinary elastic Horovod script.

Rank 0 prints every commit, every rank its world, its accuracy and the hash of its weights at the end.
"""

import argparse
import hashlib
import os

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=16, help="of one rank")
parser.add_argument("--commit", type=int, default=5, help="batches between two commits")
parser.add_argument("--target", type=float, default=0.0, help="fail if the final accuracy (%%) is below this")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(7)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)
test = torch.arange(len(labels)) % 5 == 0
train_images, train_labels = images[~test], labels[~test]

hvd.init()
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(train_labels, seed=3)


def accuracy() -> float:
    """Return the share of the test images that are read right, in percent."""
    with torch.no_grad():
        return 100.0 * (model(images[test]).argmax(1) == labels[test]).float().mean().item()


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Continue from the last commit."""
    while state.epoch < args.epochs:
        for index in range(-(-len(sampler) // args.batch_size)):
            batch = sampler.get_indices(index, args.batch_size)
            optimizer.zero_grad()
            F.cross_entropy(model(train_images[batch]), train_labels[batch]).backward()
            optimizer.step()
            sampler.record_batch(index, args.batch_size)
            state.batch += 1
            if state.batch % args.commit == 0:
                if hvd.rank() == 0:
                    print(f"commit {state.batch} epoch {state.epoch} size {hvd.size()}", flush=True)
                state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)
train(state)
weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()[:16]
everybody = set(hvd.allgather_object(weights))
print(
    f"done rank {hvd.rank()} of {hvd.size()}: pid {os.getpid()} batches {state.batch} "
    f"accuracy {accuracy():.2f} % weights {weights}",
    flush=True,
)
if len(everybody) > 1:
    raise SystemExit(f"ranks ended with different weights: {everybody}")
if accuracy() < args.target:
    raise SystemExit(f"accuracy below {args.target} %")
