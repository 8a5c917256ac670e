"""Run by every rank of a real job: join, with torch and numpy. Exits non-zero if it is wrong."""

import numpy as np
import torch

import gorun.numpy as hnp
import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()

# Ranks run out of data one after the other, in another order each time.
for turn in range(3):
    steps = [(r + turn) % size + 1 for r in range(size)]
    for step in range(steps[rank]):
        active = sum(r + 1.0 for r in range(size) if steps[r] > step)
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            got = hvd.allreduce(torch.full((5,), rank + 1).to(dtype), op=hvd.Sum, name=f"x.{dtype}")
            assert torch.equal(got, torch.full((5,), active).to(dtype)), (turn, step, got, active)
        mean = hvd.allreduce(torch.full((70_000,), rank + 1.0), name="mean")
        assert torch.allclose(mean, torch.full((70_000,), active / size)), "an average divides by all ranks"
        array = hnp.allreduce(np.full((3, 2), rank + 1.0), op=hvd.Sum, name="y")
        assert (array == active).all()
    last = hvd.join()
    assert steps[last] == size, (turn, last)
    assert hvd.allgather(torch.tensor([last])).tolist() == [last] * size, "ranks name different ones"
assert hnp.join() in range(size)

# Operations without names match after a join too, whatever ranks did before, beside one that is open.
begun = hvd.allreduce_async(torch.ones(1), op=hvd.Sum)
for turn in range(3):
    for _ in range(2 + (rank + turn) % size):
        hvd.allreduce(torch.ones(1))
        hnp.allreduce(np.ones(1))
    hvd.join()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [size, size]
    assert hnp.allgather(np.array([rank])).tolist() == list(range(size))
    hvd.barrier()
assert hvd.synchronize(begun).item() == size

# What needs every rank fails, and the job goes on.
if size > 1:
    if rank == 0:
        assert hvd.join() != 0
    else:
        for wrong in (
            lambda: hvd.allgather(torch.ones(1), name="g"),
            lambda: hvd.broadcast(torch.ones(1), 1, name="b"),
            lambda: hvd.alltoall(torch.ones(size), name="a"),
            lambda: hvd.reducescatter(torch.ones(size), name="r"),
        ):
            try:
                wrong()
            except hvd.HorovodInternalError as error:
                assert "not supported with Join" in str(error), error
            else:
                raise AssertionError("an operation went on without a rank")
        assert hvd.join() != 0

# A model on uneven data: gradients of ranks that are done are zeros.
torch.manual_seed(1)
model = torch.nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
before = model.weight.detach().clone()
for _ in range(rank):  # rank 0 has no data at all, not even for the first step
    optimizer.zero_grad()
    model(torch.ones(3, 4) * (rank + 1)).sum().backward()
    optimizer.step()
assert hvd.join() in (range(size) if size == 1 else [size - 1])
if rank == size - 1:  # each step of a rank moves by its own gradient's part of the average
    moved = sum(r * 3.0 * (r + 1) for r in range(size)) * 0.1 / size
    assert torch.allclose(before - model.weight, torch.full((2, 4), moved), atol=1e-5), before - model.weight
hvd.broadcast_parameters(model.state_dict(), root_rank=size - 1)

# Two optimizers agree in the order in which they were made, on a rank without data too.
models = [torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(3, 1)]
optimizers = [
    hvd.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1), named_parameters=m.named_parameters())
    for m in models
]
start = [m.weight.detach().clone() for m in models]
for _ in range(rank):
    for each, its in zip(models, optimizers):
        its.zero_grad()
        each(torch.ones(1, each.in_features) * (rank + 1)).sum().backward()
        its.step()
assert hvd.join() in (range(size) if size == 1 else [size - 1])
if rank == size - 1:
    moved = sum(r * (r + 1) for r in range(size)) * 0.1 / size
    for each, was in zip(models, start):
        gone = was - each.weight
        assert torch.allclose(gone, torch.full_like(gone, moved), atol=1e-5), gone

# Afterwards all have data again, the rank that had none before too.
for _ in range(2):
    for _ in range(size - rank):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    assert hvd.join() == 0
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
weights = hvd.allgather(model.weight.detach().flatten()[None])
assert (weights == weights[0]).all(), weights

# Types that torch does not have.
for kind in (np.uint16, np.uint32, np.uint64):
    assert hnp.allreduce(np.array([rank + 1], kind), op=hvd.BitXor).dtype == kind
for kind in (np.complex64, np.complex128):
    got = hnp.allreduce(np.array([1 + 1j], kind), op=hvd.Product)
    assert np.allclose(got, (1 + 1j) ** size), got
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
