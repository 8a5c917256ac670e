"""Run by every rank of a real job: reduce, gather, scatter, send, recv. Exits non-zero if one is wrong."""

import torch

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
ranks = range(size)


def ranked(r, *shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 7 + 1) * (r + 1)).reshape(shape).to(dtype)


def fails(call):
    """Fail unless a call is refused."""
    try:
        call()
    except ValueError:
        return
    raise AssertionError("a wrong argument was accepted")


for root in ranks:
    for dtype in (torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64):
        for shape in ((), (0,), (5, 3), (100_000,)):
            total = sum(ranked(r, *shape, dtype=dtype) for r in ranks)
            got = hvd.reduce(ranked(rank, *shape, dtype=dtype), root, op=hvd.Sum)
            assert (got is None) if rank != root else torch.equal(got, total.to(dtype)), (dtype, shape)
    mean = hvd.reduce(ranked(rank, 9), root)
    assert rank != root or torch.allclose(mean, sum(ranked(r, 9) for r in ranks) / size)

    for scale in (0, 1, 10_000):
        got = hvd.gather(ranked(rank, scale * rank, 3), root)
        want = torch.cat([ranked(r, scale * r, 3) for r in ranks])
        assert (got is None) if rank != root else torch.equal(got, want), scale

    rows = 1000 * size + 1
    whole = ranked(root, rows, 3)
    splits = [1000 * (r % 2) + r for r in ranks]
    mine = hvd.scatter(whole if rank == root else whole[:0], root)
    start = 1000 * rank + min(rank, 1)
    assert torch.equal(mine, whole[start : start + 1000 + (rank == 0)])
    mine = hvd.scatter(whole if rank == root else torch.zeros(7, 3), root, splits)
    start = sum(splits[:rank])
    assert torch.equal(mine, whole[start : start + splits[rank]])

# Around the ring, both ways at once; then to everybody, unnamed, in order.
right, left = (rank + 1) % size, (rank - 1) % size
if size > 1:
    handles = [hvd.send_async(ranked(rank, 50_000), right), hvd.send_async(ranked(rank + 9, 3), left, "back")]
    assert torch.equal(hvd.recv(torch.zeros(50_000), left), ranked(left, 50_000))
    assert torch.equal(hvd.recv(torch.zeros(3), right, name="back"), ranked(right + 9, 3))
    for handle in handles:
        hvd.synchronize(handle)
handles = [hvd.send_async(torch.tensor(10 * rank + i), to) for to in ranks if to != rank for i in range(3)]
for other in ranks:
    for i in range(3):
        if other != rank:
            assert hvd.recv(torch.tensor(-1), other).item() == 10 * other + i
for handle in handles:
    hvd.synchronize(handle)

# Bits and truth, of every integer type and of bool.
for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool):
    inputs = [(torch.arange(1000) * (2 * r + 3) % 11).to(dtype) for r in ranks]
    for op, combine in (
        (hvd.BitAnd, torch.bitwise_and), (hvd.BitOr, torch.bitwise_or), (hvd.BitXor, torch.bitwise_xor),
        (hvd.LogicalAnd, torch.logical_and), (hvd.LogicalOr, torch.logical_or),
        (hvd.LogicalXor, torch.logical_xor),
    ):  # fmt: skip
        truth = op in (hvd.LogicalAnd, hvd.LogicalOr, hvd.LogicalXor)
        want = inputs[0].bool().to(dtype) if truth else inputs[0]
        for part in inputs[1:]:
            want = combine(want, part).to(dtype)
        assert torch.equal(hvd.allreduce(inputs[rank], op=op), want), (dtype, op)
        got = hvd.reduce(inputs[rank], 0, op=op)
        assert rank != 0 or torch.equal(got, want), (dtype, op)
for dtype in (torch.complex64, torch.complex128):
    part = torch.complex(torch.arange(100.0), torch.full((100,), rank + 1.0)).to(dtype)
    want = torch.complex(size * torch.arange(100.0), torch.full((100,), sum(r + 1.0 for r in ranks))).to(
        dtype
    )
    assert torch.equal(hvd.allreduce(part, op=hvd.Sum), want)
fails(lambda: hvd.allreduce(torch.ones(3), op=hvd.BitAnd) if size > 1 else hvd.send(torch.ones(3), 0))

fails(lambda: hvd.reduce(torch.ones(3), size))
fails(lambda: hvd.reduce(torch.ones(3), 0, op=hvd.Adasum))
fails(lambda: hvd.gather(torch.tensor(1.0), 0))
fails(lambda: hvd.scatter(torch.ones(3), -1))
fails(lambda: hvd.scatter(torch.ones(3), rank, [4] + [0] * (size - 1)))
fails(lambda: hvd.send(torch.ones(3), rank))
fails(lambda: hvd.recv(torch.ones(3), size))
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
