"""Train a small CNN on scikit-learn's handwritten digits: an ordinary Horovod script.

    gorun -np 4 -H host1:2,host2:2 python3 digits_torch.py
"""

import argparse
import time

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=16)
parser.add_argument("--batch-size", type=int, default=16, help="of one rank")
parser.add_argument("--lr", type=float, default=0.02, help="for one rank; grows with their number")
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
parser.add_argument("--target", type=float, default=0.0, help="fail if the final accuracy is below this")


class Net(nn.Module):
    """Two convolutions and two linear layers: about 76,000 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(F.dropout(x, 0.4, self.training))


def load(seed: int) -> "tuple[TensorDataset, TensorDataset]":
    """Return the images for training and for testing."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    everything = range(len(labels))
    train, test = train_test_split(everything, test_size=0.2, random_state=seed, stratify=digits.target)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def average(value: float, name: str) -> float:
    """Return the mean of the ranks' values."""
    return hvd.allreduce(torch.tensor(value), name=name).item()


def main() -> None:
    """Train, and print the accuracy."""
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # the ranks share the cores

    train_set, test_set = load(args.seed)
    train_sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
    train_loader = DataLoader(train_set, args.batch_size, sampler=train_sampler)
    test_sampler = DistributedSampler(test_set, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
    test_loader = DataLoader(test_set, 256, sampler=test_sampler)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression
    )

    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        model.train()
        train_sampler.set_epoch(epoch)
        start, losses = time.perf_counter(), []
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        elapsed = time.perf_counter() - start
        scheduler.step()

        model.eval()
        with torch.no_grad():
            right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test_loader)
        loss = average(sum(losses) / len(losses), "loss")
        accuracy = average(right / len(test_sampler), "accuracy")
        if hvd.rank() == 0:
            rate = len(train_set) / elapsed
            line = f"epoch {epoch:2d}  loss {loss:.4f}  accuracy {accuracy:.2%}  {rate:,.0f} images/s"
            print(line, flush=True)

    if hvd.rank() == 0:
        print(f"final accuracy {accuracy:.2%} with {hvd.size()} ranks", flush=True)
    if accuracy < args.target:
        raise SystemExit(f"accuracy {accuracy:.2%} is below {args.target:.2%}")


if __name__ == "__main__":
    main()
