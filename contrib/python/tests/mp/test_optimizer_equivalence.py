"""Run by every rank of a real job: N ranks with batch B train the weights of one rank with batch N*B."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import gorun.torch as hvd

STEPS, ROWS = 12, 8

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 600), nn.ReLU(), nn.Linear(600, 10)
    )


def data(step):
    generator = torch.Generator().manual_seed(step)
    rows = ROWS * size
    return torch.randn(rows, 1, 8, 8, generator=generator), torch.randint(10, (rows,), generator=generator)


def train(model, optimizer, first, last, zeroing):
    for step in range(STEPS):
        x, y = data(step)
        optimizer.zero_grad(**zeroing)
        F.cross_entropy(model(x[first:last]), y[first:last]).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


CASES = {
    "sgd": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=1e-3), {}, 1e-4),
    "adam": (lambda ps: torch.optim.Adam(ps, lr=1e-3), {}, 1e-4),
    "sgd in half precision": (
        lambda ps: torch.optim.SGD(ps, lr=0.1), {"compression": hvd.Compression.fp16}, 1e-2,
    ),
}  # fmt: skip
for what, (make, options, tolerance) in CASES.items():
    for zeroing in ({"set_to_none": True}, {"set_to_none": False}):
        alone = make_model(0)
        want = train(alone, make(alone.parameters()), 0, ROWS * size, zeroing)
        model = make_model(rank)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = make(model.parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
        got = train(model, optimizer, ROWS * rank, ROWS * (rank + 1), zeroing)
        for g, w in zip(got, want):
            error = (g - w).abs().max().item()
            assert error < tolerance, (what, zeroing, error)
            every = hvd.allgather(g.reshape(1, -1))
            assert torch.equal(every, every[:1].expand(size, -1)), f"{what}: ranks have different weights"

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
