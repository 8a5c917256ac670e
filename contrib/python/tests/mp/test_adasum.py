"""Run by every rank of a real job: Adasum. Exits non-zero if it is wrong."""

import torch

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()


def same(tensor):
    """Fail unless all ranks have the same bits."""
    every = hvd.allgather(tensor.detach().reshape(1, -1))
    assert torch.equal(every, every[:1].expand_as(every)), "ranks have different bits"


# Equal vectors are averaged, orthogonal ones added up.
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    ones = torch.ones(1000).to(dtype)
    assert torch.equal(hvd.allreduce(ones, op=hvd.Adasum), ones), dtype
    mine = torch.zeros(size).to(dtype)
    mine[rank] = rank + 1
    got = hvd.allreduce(mine, op=hvd.Adasum)
    assert torch.equal(got, torch.arange(1, size + 1).to(dtype)), got

# Tensors of a group are weighed one by one.
first = torch.full((3,), rank + 1.0)
second = torch.zeros(size)
second[rank] = 1.0
together = hvd.grouped_allreduce([first, second], op=hvd.Adasum)
assert torch.equal(together[0], hvd.allreduce(first, op=hvd.Adasum))
assert torch.equal(together[1], torch.ones(size))
noise = torch.randn(100_003, generator=torch.Generator().manual_seed(rank))
same(hvd.allreduce(noise, op=hvd.Adasum))
try:
    hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.Adasum)
except ValueError:
    pass
else:
    assert size == 1, "integers have no Adasum"

# The optimizer combines steps, not gradients.
torch.manual_seed(1)
model = torch.nn.Linear(4, 2)
start = [p.detach().clone() for p in model.parameters()]
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    named_parameters=model.named_parameters(), op=hvd.Adasum,
)  # fmt: skip
optimizer.zero_grad()
model(torch.full((1, 4), rank + 1.0)).sum().backward()
moves = [-0.1 * p.grad.clone() for p in model.parameters()]
optimizer.step()
for parameter, begin, move in zip(model.parameters(), start, moves):
    want = begin + hvd.allreduce(move, op=hvd.Adasum)
    assert torch.allclose(parameter, want, atol=1e-6), (parameter, want)
    same(parameter)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.full((1, 4), rank + 1.0)).sum().backward()
    optimizer.step()
for parameter in model.parameters():
    same(parameter)
try:
    with optimizer.skip_synchronize():
        raise ValueError("skip_synchronize() was accepted")
except AssertionError:
    pass
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
