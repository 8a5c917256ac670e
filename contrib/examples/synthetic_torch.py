"""Measure training on random images: an ordinary Horovod script, without data and without downloads.

    gorun -np 4 -H host1:2,host2:2 python3 synthetic_torch.py --batch-size 8

Takes a model of torchvision (--model resnet50) or, where that is not installed, a small ResNet of its own.
"""

import argparse
import timeit
from typing import Callable

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="small", help="small, or a model of torchvision")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--image-size", type=int, default=64)
parser.add_argument("--num-warmup-batches", type=int, default=3)
parser.add_argument("--num-batches-per-iter", type=int, default=3)
parser.add_argument("--num-iters", type=int, default=5)
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def small_resnet(classes: int = 1000) -> nn.Module:
    """Return a ResNet of eight blocks and 11 million weights, the shape of resnet18."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            layers.append(Block(width, outputs, 2 if stage and not block else 1))
            width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def make_model(name: str) -> nn.Module:
    """Return the model of that name."""
    if name == "small":
        return small_resnet()
    try:
        from torchvision import models
    except ImportError:
        if hvd.rank() == 0:
            print(f"torchvision is not installed: a small ResNet takes the place of {name}", flush=True)
        return small_resnet()
    return getattr(models, name)()


def measure(step: Callable[[], None], args: argparse.Namespace) -> "list[float]":
    """Return the images per second of each round."""
    timeit.timeit(step, number=args.num_warmup_batches)
    rates = []
    for _ in range(args.num_iters):
        elapsed = timeit.timeit(step, number=args.num_batches_per_iter)
        rates.append(args.batch_size * args.num_batches_per_iter / elapsed)
    return rates


def main() -> None:
    """Train on noise and print the speed."""
    args = parser.parse_args()
    hvd.init()
    cuda = torch.cuda.is_available() and not args.no_cuda
    if cuda:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(42)
    if not cuda:
        torch.set_num_threads(1)  # the ranks share the cores

    model = make_model(args.model).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression, op=hvd.Average
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device)
    labels = torch.randint(1000, (args.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if cuda:
            torch.cuda.synchronize()

    rates = torch.tensor(measure(step, args), dtype=torch.float64)
    spread = 1.96 * rates.std(unbiased=False).item()
    if hvd.rank() == 0:
        kind, mean, size = device.type.upper(), rates.mean().item(), hvd.size()
        print(f"Img/sec per {kind}: {mean:.1f} +-{spread:.1f}")
        print(f"Total img/sec on {size} {kind}(s): {size * mean:.1f} +-{size * spread:.1f}")


if __name__ == "__main__":
    main()
