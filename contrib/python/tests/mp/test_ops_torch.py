"""Run by every rank of a real job: the collectives for torch. Exits non-zero if one of them is wrong."""

import torch

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
TYPES = (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)


def ranked(r, *shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 7) * (r + 1)).reshape(shape).to(dtype)


def everywhere(*shape, dtype=torch.float32):
    return [ranked(r, *shape, dtype=dtype) for r in range(size)]


polled = False
for dtype in TYPES:
    for shape in ((), (0,), (17,), (33, 65), (4, 5, 6)):
        total = sum(everywhere(*shape, dtype=dtype))
        tensor = ranked(rank, *shape, dtype=dtype)
        handle = hvd.allreduce_async(tensor, op=hvd.Sum)
        polled = polled or not hvd.poll(handle)
        got = hvd.synchronize(handle)
        assert got.dtype == dtype and torch.equal(got, total), (dtype, shape)
        assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor and torch.equal(tensor, total)
        root = shape[0] % size if shape else 0
        got = hvd.broadcast(ranked(rank, *shape, dtype=dtype), root)
        assert torch.equal(got, ranked(root, *shape, dtype=dtype))
    got = hvd.allgather(ranked(rank, rank, 3, dtype=dtype))
    assert torch.equal(got, torch.cat([ranked(r, r, 3, dtype=dtype) for r in range(size)]))
assert polled or size == 1, "poll() was never False"  # alone, an operation may end before it is asked for

# Every rank must have the same bits, whatever the rounding.
noise = torch.randn(300_000, generator=torch.Generator().manual_seed(rank))
mean = hvd.allreduce(noise)
assert torch.equal(hvd.allgather(mean.reshape(1, -1)), mean.expand(size, -1)), "ranks have different bits"
noises = [torch.randn(300_000, generator=torch.Generator().manual_seed(r)) for r in range(size)]
assert torch.allclose(mean.double(), torch.stack(noises).double().mean(0), atol=1e-5)

half = hvd.allreduce(ranked(rank, 100), compression=hvd.Compression.fp16, op=hvd.Sum)
assert half.dtype == torch.float32 and torch.equal(half, sum(everywhere(100)))
strided = hvd.allreduce(ranked(rank, 30, 20).t()[::3], op=hvd.Sum)
assert torch.equal(strided, sum(everywhere(30, 20)).t()[::3])

group = [ranked(rank, 5), ranked(rank, 3, 3, dtype=torch.float64), ranked(rank, 1)]
for got, mine in zip(hvd.grouped_allreduce(group, op=hvd.Sum), group):
    assert torch.equal(got, sum(everywhere(*mine.shape, dtype=mine.dtype)))

x = ranked(rank, 4).requires_grad_()
(hvd.allreduce(x, op=hvd.Sum).sum() + hvd.broadcast(x, 0).sum() + hvd.allgather(x).sum()).backward()
assert torch.allclose(x.grad, torch.full((4,), size + (1.0 if rank == 0 else 0.0) + 1.0)), x.grad

sparse = torch.sparse_coo_tensor(torch.tensor([[rank, size]]), torch.ones(2, 2), (size + 1, 2))
dense = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)().to_dense()
assert torch.equal(dense, torch.tensor([[1.0, 1.0]] * size + [[float(size)] * 2]))

if size > 1:
    wrong = {
        "shape": lambda: hvd.allreduce_async(torch.ones(1 + rank), name="wrong"),
        "type": lambda: hvd.allreduce_async(
            torch.ones(1, dtype=torch.float64 if rank else torch.float32), name="wrong"
        ),
        "root": lambda: hvd.broadcast_async(torch.ones(1), min(rank, 1), name="wrong"),
    }
    # Groups of as many elements, in another order: only their shapes differ.
    for n in range(2, 62):
        pair = [torch.ones(1), torch.ones(n)]
        wrong[f"shapes [1], [{n}]"] = lambda pair=pair: hvd.grouped_allreduce_async(
            pair[::-1] if rank else pair, name="wrong"
        )
        wrong[f"parameters [1], [{n}]"] = lambda pair=pair: hvd.broadcast_parameters(
            list(zip("ab", pair[::-1] if rank else pair)), 0
        )
    for what, start in wrong.items():
        try:
            handle = start()
            if handle is not None:
                hvd.synchronize(handle)
        except hvd.HorovodInternalError:
            pass
        else:
            raise AssertionError(f"ranks of different {what} were not told")
try:
    hvd.broadcast(torch.ones(1), size)
except ValueError:
    pass
else:
    raise AssertionError("a root that does not exist was accepted")

hvd.barrier()
for _ in range(3):
    assert hvd.is_initialized()
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
