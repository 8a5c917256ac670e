"""Run by every rank of a real job: the collectives for numpy. Exits non-zero if one of them is wrong."""

import numpy as np

import gorun.numpy as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()


def rows(r, n, dtype="f4"):
    return ((np.arange(n * 3) % 11) * (r + 1)).reshape(n, 3).astype(dtype)


for dtype in ("i4", "i8", "f2", "f4", "f8"):
    for n in (0, 1, 7, 1000):
        total = sum(rows(r, n, dtype) for r in range(size))
        got = hvd.allreduce(rows(rank, n, dtype), op=hvd.Sum)
        assert got.dtype == total.dtype and np.array_equal(got, total), (dtype, n)

big = np.full(5_000_000, rank + 1.0, "f4")  # many segments
assert np.array_equal(hvd.allreduce(big, op=hvd.Sum), np.full(big.shape, size * (size + 1) / 2, "f4"))
assert np.allclose(hvd.allreduce(big), (size + 1) / 2)
assert hvd.allreduce(float(rank), op=hvd.Max) == size - 1
assert hvd.allreduce(float(rank), op=hvd.Min) == 0
assert np.allclose(hvd.allreduce(np.ones(5), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3), 1.5 * size)

for root in range(size):
    assert np.array_equal(hvd.broadcast(rows(rank, 50), root), rows(root, 50))
assert np.array_equal(hvd.broadcast(big, 0), np.ones(big.shape, "f4"))

got = hvd.allgather(rows(rank, 2 * rank))  # rank 0 brings nothing
assert np.array_equal(got, np.concatenate([rows(r, 2 * r) for r in range(size)]))
two = hvd.grouped_allgather([rows(rank, rank + 1), np.full(rank, rank, "i8")], name="two")
assert np.array_equal(two[0], np.concatenate([rows(r, r + 1) for r in range(size)]))
assert two[1].tolist() == [r for r in range(size) for _ in range(r)]
two = hvd.grouped_reducescatter([rows(rank, 2 * size + 1), np.full(size, rank, "i4")], op=hvd.Sum)
assert np.array_equal(two[0], np.array_split(sum(rows(r, 2 * size + 1) for r in range(size)), size)[rank])
assert two[1].tolist() == [size * (size - 1) // 2]
assert hvd.allgather_object({"rank": rank, "x": "y" * 1000 * rank}) == [
    {"rank": r, "x": "y" * 1000 * r} for r in range(size)
]
assert hvd.broadcast_object(["root", rank], size - 1) == ["root", size - 1]

handles = [hvd.allreduce_async(np.full(i, 1.0), name=f"h{i}", op=hvd.Sum) for i in range(1, 40)]
for i, handle in enumerate(handles, 1):
    assert np.array_equal(hvd.synchronize(handle), np.full(i, float(size)))

if size > 1:
    try:
        hvd.allreduce(np.ones(rank + 1), name="mismatch")
    except hvd.HorovodInternalError as error:
        assert str(error), "an error without a text"
    else:
        raise AssertionError("different shapes were added up")
    assert hvd.allreduce(1.0, name="mismatch") == 1.0, "the world does not go on after a mismatch"

hvd.barrier()
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
