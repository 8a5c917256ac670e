"""Run by every rank of a real job, with torch 2: torch.compile of what calls torch.distributed."""

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gorun.torch.distributed  # noqa: F401 (registers the backend)

BACKEND = "aot_eager"  # the tracing of the real thing, without its compiler
torch.set_num_threads(1)
dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()


def broadcast(t):
    t = t + rank
    dist.broadcast(t, size - 1)
    return 2 * t


def barrier(t):
    t = t + 1
    dist.barrier()
    return 2 * t


def all_reduce(t):
    t = t + 1
    dist.all_reduce(t)
    return 2 * t


def all_reduce_later(t):
    t = t + 1
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    return 2 * t


def all_gather(t):
    parts = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(parts, t + rank)
    return sum(parts)


def reduce(t):
    t = t + 1
    dist.reduce(t, 0)
    return t if rank == 0 else t * size


def scatter(t):
    got = torch.zeros(4)
    dist.scatter(got, [t for _ in range(size)] if rank == 0 else None, 0)
    return got


def transfer(t):
    t = t + rank
    if rank == 0 and size > 1:
        dist.send(t, 1)
    elif rank == 1:
        dist.recv(t, 0)
    return t if rank < 2 else t - rank


WANT = {
    broadcast: 2 * size, barrier: 4, all_reduce: 4 * size, all_reduce_later: 4 * size,
    all_gather: size + size * (size - 1) / 2, reduce: 2 * size, scatter: 1, transfer: 1,
}  # fmt: skip


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 4))


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        data = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        model(data).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


for call, want in WANT.items():  # broadcast first: nothing was called before it was traced
    compiled = torch.compile(call, backend=BACKEND)
    for _ in range(2):
        got = compiled(torch.ones(4))
        assert got.tolist() == [want] * 4, (call.__name__, got, want)
plain = train(DistributedDataParallel(make_model()))
whole = train(torch.compile(DistributedDataParallel(make_model()), backend=BACKEND))
inner = train(DistributedDataParallel(torch.compile(make_model(), backend=BACKEND)))
for a, b, c in zip(plain, whole, inner):
    assert torch.allclose(a, b, atol=1e-6) and torch.allclose(a, c, atol=1e-6)
dist.destroy_process_group()
print(f"rank {rank} of {size}: ok")
