"""Run by every rank of a real job: what Horovod refuses, and what its semantics say of unusual tensors."""

import torch
from torch import nn

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
ranks = range(size)

# The default is the average, of integers too, which are cut off toward zero.
assert torch.allclose(hvd.allreduce(torch.tensor([float(rank)])), torch.tensor([(size - 1) / 2]))
assert hvd.allreduce(torch.tensor([-7 - rank])).item() == int(sum(-7 - r for r in ranks) / size)
assert hvd.allreduce(torch.tensor([rank]), average=False).item() == sum(ranks)
assert hvd.allreduce(torch.tensor([7]), op=hvd.Sum, prescale_factor=0.5).item() == 3 * size
try:
    hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
except ValueError:
    pass
else:
    raise AssertionError("average and op were both accepted")

# bfloat16 and bool, everywhere.
assert torch.equal(
    hvd.allreduce(torch.full((5,), rank + 1.0, dtype=torch.bfloat16), op=hvd.Sum),
    torch.full((5,), float(sum(r + 1 for r in ranks)), dtype=torch.bfloat16),
)
for dtype in (torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16):
    mine = (torch.arange(6).reshape(3, 2) % (rank + 2)).to(dtype)
    want = [(torch.arange(6).reshape(3, 2) % (r + 2)).to(dtype) for r in ranks]
    assert torch.equal(hvd.allgather(mine), torch.cat(want)), dtype
    assert torch.equal(hvd.broadcast(mine, size - 1), want[-1]), dtype
    got = hvd.alltoall(torch.cat([mine] * size))
    assert torch.equal(got, torch.cat(want)), dtype
# Types without arithmetic are moved, whatever their bits, as far as this torch has them.
for name in "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu complex32".split():
    dtype = getattr(torch, name, None)
    if dtype is None:
        continue
    bits = torch.int32 if name == "complex32" else torch.uint8
    want = [(torch.arange(6, dtype=bits).reshape(3, 2) * 43 + r).view(dtype) for r in ranks]
    mine = want[rank].clone()
    assert hvd.allgather(mine).dtype is dtype
    assert torch.equal(hvd.allgather(mine).view(bits), torch.cat([w.view(bits) for w in want])), dtype
    assert torch.equal(hvd.broadcast(mine, size - 1).view(bits), want[-1].view(bits)), dtype
    try:
        hvd.allreduce(mine)
    except ValueError:
        pass
    else:
        raise AssertionError(f"{dtype} was added up")
    hvd.broadcast_parameters({"moved": mine, "other": torch.ones(2)}, root_rank=0)
    assert torch.equal(mine.view(bits), want[0].view(bits)), dtype
flags = torch.tensor([rank == 0, True, False])
assert hvd.allreduce(flags, op=hvd.Max).tolist() == [True, True, False]
assert hvd.allreduce(flags, op=hvd.Min).tolist() == [size == 1, True, False]

# Nothing, views, and the argument itself.
for op in (hvd.Sum, hvd.Average, hvd.Max):
    assert hvd.allreduce(torch.zeros(0, 3), op=op).shape == (0, 3)
assert hvd.broadcast(torch.zeros(2, 0), 0).shape == (2, 0)
assert hvd.allgather(torch.zeros(0, 3)).shape == (0, 3)
whole = torch.zeros(6, 4)
column = whole[:, 1]
column.fill_(rank + 1.0)
assert hvd.allreduce_(column, op=hvd.Sum) is column
assert whole[:, 1].tolist() == [float(sum(r + 1 for r in ranks))] * 6 and whole.sum() == column.sum()
turned = torch.arange(6.0).reshape(2, 3).t() + rank
assert torch.allclose(hvd.allreduce(turned), turned - rank + (size - 1) / 2)
assert torch.equal(hvd.allgather(turned), torch.cat([turned - rank + r for r in ranks]))

# All or nothing: a group waits for its last member on every rank.
group = [torch.full((2,), float(rank)), torch.full((3,), rank, dtype=torch.int64)]
handle = hvd.grouped_allreduce_async(group, op=hvd.Sum, name="group")
assert [tensor.sum().item() for tensor in hvd.synchronize(handle)] == [2 * sum(ranks), 3 * sum(ranks)]

# The extra rows of reducescatter go to the first ranks, one each.
rows = 2 * size + 1
got = hvd.reducescatter(torch.arange(float(rows)).reshape(-1, 1), op=hvd.Sum)
first = 2 * rank + min(rank, 1)
assert got.flatten().tolist() == [size * float(i) for i in range(first, first + 2 + (rank == 0))]

# A name in use, and a handle that is none.
if size > 1:
    handle = hvd.allreduce_async(torch.ones(1), name="mine") if rank == 0 else None
    if rank == 0:
        try:
            hvd.allreduce_async(torch.ones(1), name="mine")
        except ValueError:
            pass
        else:
            raise AssertionError("a name was used twice")
    hvd.barrier()  # the others wait with their parts: the first use is in flight until rank 0 tried
    if rank > 0:
        handle = hvd.allreduce_async(torch.ones(1), name="mine")
    hvd.synchronize(handle)
if size > 1:
    assert hvd.synchronize(handle) is None, "asked again, Horovod says nothing"
for wrong in (-1, 10**6):
    try:
        hvd.synchronize(wrong)
    except ValueError:
        pass
    else:
        raise AssertionError("a handle that never was is accepted")

# SyncBatchNorm needs no GPU, and is BatchNorm of all batches.
torch.manual_seed(0)
data = torch.randn(4 * size, 3, 2)
plain, synced = nn.BatchNorm1d(3), hvd.SyncBatchNorm(3)
whole, part = data.clone().requires_grad_(), data[4 * rank : 4 * rank + 4].clone().requires_grad_()
plain(whole).square().sum().backward()
synced(part).square().sum().backward()
assert torch.allclose(part.grad, whole.grad[4 * rank : 4 * rank + 4], atol=1e-5)
assert torch.allclose(synced.running_var, plain.running_var, atol=1e-5)

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
