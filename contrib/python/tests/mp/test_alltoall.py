"""Run by every rank of a real job: alltoall. Exits non-zero if a rank gets what was not sent to it."""

import numpy as np
import torch

import gorun.numpy as hvd_numpy
import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.float32, torch.float64)


def rows(a, b, scale):
    """How many rows rank a has for rank b; some have none."""
    return scale * (3 * a + b) % (2 * scale + 1)


def sent(a, scale, dtype=torch.float32):
    """All that rank a has: each row names its sender and its receiver."""
    pieces = [torch.full((rows(a, b, scale), 2), 10 * a + b).to(dtype) for b in range(size)]
    return torch.cat(pieces), torch.tensor([rows(a, b, scale) for b in range(size)], dtype=torch.int32)


def check(got, received, scale, dtype=torch.float32):
    want = torch.cat([torch.full((rows(a, rank, scale), 2), 10 * a + rank).to(dtype) for a in range(size)])
    assert got.dtype == dtype and torch.equal(got, want), (scale, dtype)
    assert received.dtype == torch.int32 and received.tolist() == [rows(a, rank, scale) for a in range(size)]


for dtype in INTEGERS + FLOATS:
    for scale in (0, 1, 50):
        check(*hvd.alltoall(*sent(rank, scale, dtype)), scale, dtype)
for _ in range(3):
    check(*hvd.alltoall(*sent(rank, 200_000), name="big"), 200_000)

# Without splits, all ranks get the same number of rows, and no count of them.
even = hvd.alltoall(torch.arange(3 * size, dtype=torch.int64) + 1000 * rank)
assert even.tolist() == [1000 * a + 3 * rank + i for a in range(size) for i in range(3)], even

# Rows beyond the sum of splits stay; operations under way at once do not meet.
tensor, splits = sent(rank, 5)
handles = [hvd.alltoall_async(torch.cat([tensor, torch.ones(3, 2)]), splits, name=f"a{i}") for i in range(10)]
for handle in reversed(handles):
    check(*hvd.synchronize(handle), 5)

x = sent(rank, 4)[0].requires_grad_()
got, received = hvd.alltoall(x, sent(rank, 4)[1])
(got * (rank + 1)).sum().backward()
want = torch.cat([torch.full((rows(rank, b, 4), 2), b + 1.0) for b in range(size)])
assert torch.equal(x.grad, want), x.grad

got, received = hvd_numpy.alltoall(np.full(2 * size, rank, "u2"), [2] * size)
assert got.tolist() == [a for a in range(size) for _ in range(2)] and received.tolist() == [2] * size

for wrong in (
    lambda: hvd.alltoall(torch.ones(size + 1), torch.ones(size + 1, dtype=torch.int32)),
    lambda: hvd.alltoall(torch.ones(size), torch.full((size,), 2, dtype=torch.int32)),
    lambda: hvd.alltoall(torch.ones(size), torch.ones(size, dtype=torch.int64)),
    lambda: hvd.alltoall(torch.tensor(1.0)),
):
    try:
        wrong()
    except ValueError:
        pass
    else:
        raise AssertionError("wrong splits were accepted")
if size > 1:
    try:
        hvd.alltoall(torch.ones(size, 1 + rank), name="wrong")
    except hvd.HorovodInternalError:
        pass
    else:
        raise AssertionError("rows of different shapes were not told")
    try:
        splits = torch.ones(size, dtype=torch.int32 if rank else torch.int64)
        hvd.alltoall(torch.ones(size), splits, name="wrong")
    except ValueError as e:
        assert rank == 0 and "32-bit integer" in str(e), e
    except hvd.HorovodInternalError as e:
        assert rank and "rank 0" in str(e) and "not one number of 32 bits for each rank" in str(e), e
    else:
        raise AssertionError("splits of the wrong type were accepted")

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
