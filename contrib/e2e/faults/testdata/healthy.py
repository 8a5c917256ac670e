"""A healthy training, which the first argument names: horovod, ddp (with a data loader) or saves (a rank saves checkpoints and
all validate). It goes on until it is stopped.
"""

import io
import itertools
import sys
import time
from collections.abc import Iterator

import torch
from torch import nn

JOB, SECONDS = sys.argv[1], float(sys.argv[2])  # how long a checkpoint takes
torch.set_num_threads(1)


class Images(torch.utils.data.Dataset):
    """Random images, whose decoding takes a while."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.001)
        return torch.randn(3, 16, 16), index % 10


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 12 * 12, 10))


def batches(epochs: Iterator[int]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    workers = 2 if JOB == "ddp" else 0
    loader = torch.utils.data.DataLoader(Images(), batch_size=16, num_workers=workers)
    for epoch in epochs:
        yield from loader
        if epoch == 0:
            print("trains", flush=True)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def ddp() -> None:
    import gorun.torch.distributed  # noqa: F401

    torch.distributed.init_process_group("gorun")
    net = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in batches(itertools.count()):
        step(net, optimizer, x, y)


def horovod() -> None:
    import horovod.torch as hvd

    hvd.init()
    net = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01), named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    for n, (x, y) in enumerate(batches(itertools.count()), 1):
        loss = step(net, optimizer, x, y)
        if n % 20 == 0:
            hvd.allreduce(loss, name="loss")
        if JOB == "saves" and n % 40 == 0:
            if hvd.rank() == 0:
                torch.save(net.state_dict(), io.BytesIO())
                time.sleep(SECONDS)
            with torch.no_grad():
                right = sum((net(x).argmax(1) == y).float().mean() for _ in range(5))
            hvd.allreduce(right, name="accuracy")


ddp() if JOB == "ddp" else horovod()
