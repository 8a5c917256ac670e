"""Run by every rank of a real job: reducescatter. Exits non-zero if a rank gets wrong rows."""

import torch

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()


def ranked(r, *shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 7 + 1) * (r + 1)).reshape(shape).to(dtype)


def share(rows, r=rank):
    """The first rows % size ranks get one row more."""
    each, more = divmod(rows, size)
    start = r * each + min(r, more)
    return slice(start, start + each + (r < more))


for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
    for rows in (0, 1, size, 2 * size + 1, 1000):
        total = sum(ranked(r, rows, 3, dtype=dtype) for r in range(size))
        got = hvd.reducescatter(ranked(rank, rows, 3, dtype=dtype), op=hvd.Sum)
        assert got.dtype == dtype and torch.equal(got, total[share(rows)]), (dtype, rows)

mean = hvd.reducescatter(ranked(rank, 10, 2), op=hvd.Average)
assert torch.allclose(mean, sum(ranked(r, 10, 2) for r in range(size))[share(10)] / size)
scaled = hvd.reducescatter(ranked(rank, 9), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
assert torch.equal(scaled, sum(ranked(r, 9) for r in range(size))[share(9)])

# Large: many segments, and the same bits as the allreduce of exact numbers.
big = torch.arange(3_000_000, dtype=torch.float32) % 1000 + rank
want = hvd.allreduce(big, op=hvd.Sum)
for _ in range(3):
    assert torch.equal(hvd.reducescatter(big, op=hvd.Sum, name="big"), want[share(len(big))])

handle = hvd.reducescatter_async(ranked(rank, 100), op=hvd.Sum)
other = hvd.allreduce(torch.ones(3), op=hvd.Sum)
assert torch.equal(hvd.synchronize(handle), sum(ranked(r, 100) for r in range(size))[share(100)])
assert torch.equal(other, torch.full((3,), float(size)))

for got, n in zip(hvd.grouped_reducescatter([ranked(rank, n) for n in (5, 8)], op=hvd.Sum), (5, 8)):
    assert torch.equal(got, sum(ranked(r, n) for r in range(size))[share(n)])

x = ranked(rank, 2 * size + 1).requires_grad_()
hvd.reducescatter(x, op=hvd.Sum).sum().backward()
assert torch.equal(x.grad, torch.full_like(x, float(size))), x.grad

for wrong in (
    lambda: hvd.reducescatter(torch.tensor(1.0)),
    lambda: hvd.reducescatter(torch.ones(4), op=hvd.Max),
):
    try:
        wrong()
    except ValueError:
        pass
    else:
        raise AssertionError("a scalar or a maximum was accepted")
if size > 1:
    try:
        hvd.reducescatter(torch.ones(4 + rank), name="wrong")
    except hvd.HorovodInternalError:
        pass
    else:
        raise AssertionError("ranks of different shapes were not told")

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
