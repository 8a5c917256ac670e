"""Run by every rank of a real job: ranks that differ are all refused within a second, and the job goes on."""

import re
import time

import numpy as np
import torch

import gorun.numpy as hvd
from gorun.torch import broadcast_parameters

hvd.init()
rank, size = hvd.rank(), hvd.size()
last = rank == size - 1
F, D, W = np.float32, np.float64, np.int32
ones = np.ones(4, F)


def group(*types, n=2):
    return [np.full(n, rank + 1, t) for t in types]


def failure(submit, *said, polls=False):
    """Return how an operation fails, within a while; the others hear what the last rank has submitted."""
    since = time.monotonic()
    try:
        handle = submit()
        while polls and not hvd.poll(handle):
            assert time.monotonic() - since < 10, "what is refused is still polled for"
            time.sleep(0.001)
        hvd.synchronize(handle)
    except (ValueError, hvd.HorovodInternalError) as error:
        assert time.monotonic() - since < 10
        if not isinstance(error, ValueError):
            assert all(words in str(error) for words in (f"rank {size - 1}", *said)), error
        return error
    raise AssertionError(f"not refused: {said}")


def differs(submit, what="", polls=False):
    assert isinstance(failure(submit, what, polls=polls), hvd.HorovodInternalError), what


def refused(name, tensors, op=hvd.Sum, polls=False, what=""):
    differs(lambda: hvd.grouped_allreduce_async(tensors, name=name, op=op), what, polls)


def told(submit, what):
    """What the last rank has wrong by itself is its ValueError, and others hear what it is."""
    assert isinstance(failure(submit, what), ValueError) == last, what


def agreed(name, *types):
    for got in hvd.grouped_allreduce(group(*types), name=name, op=hvd.Sum):
        assert np.array_equal(got, np.full(2, size * (size + 1) // 2)), got


def promptly(what, submit, *said):
    """All ranks hear who submitted what within a second of the last submission, once in five times at least.

    Each counts from where it submitted, after a barrier, which is no less than from the last submission.
    """
    took = []
    for _ in range(5):
        hvd.barrier()
        since = time.monotonic()
        try:
            hvd.synchronize(submit())
            raise AssertionError(f"{what}: not refused")
        except hvd.HorovodInternalError as e:
            mine = time.monotonic() - since
            named = ",".join(re.findall(r"ranks? ([0-9,]+) on ", str(e)))
            assert sorted(named.split(",")) == sorted(map(str, range(size))), (what, str(e))
            assert all(words in str(e) for words in said), (what, str(e))
        took.append(float(hvd.allreduce(np.float64(mine), op=hvd.Max)))
    if rank == 0:
        print(f"other {what}: the slowest rank heard after", *(f"{1000 * t:.1f}" for t in took), "ms")
    assert min(took) < 1 and max(took) < 10, (what, took)


if size > 1:
    x = ones.astype(D) if last else ones
    promptly("dtype", lambda: hvd.allreduce_async(x, name="p"), "float32[4]", "float64[4]")
    y = ones[:3] if last else ones
    promptly("shape", lambda: hvd.allreduce_async(y, name="p"), "float32[4]", "float32[3]")
    op = hvd.Max if last else hvd.Sum
    promptly("op", lambda: hvd.allreduce_async(ones, name="p", op=op), "sum", "max")
    promptly("root", lambda: hvd.broadcast_async(ones, int(last), name="p"), "from root 0", "from root 1")
    promptly("group", lambda: hvd.grouped_allreduce_async([x, y], name="p"), f"rank {rank} has, as ")
    models = [torch.ones(3 + last), torch.ones(4 - last)]
    explained = f"rank {rank} has, as ", f"float32[{3 + last}], float32[{4 - last}]"
    try:
        broadcast_parameters([(str(i), x) for i, x in enumerate(models)], root_rank=0)
        raise AssertionError("other models were broadcast")
    except hvd.HorovodInternalError as e:
        assert all(words in str(e) for words in explained), e
    agreed("p", F, D)

    for turn in range(2):
        agreed("g", F, D)
        refused("g", group(F, D) if last else group(F, F), polls=turn == 1)
        agreed("g", F, D, W)
        refused("g", group(F, W) if last else group(F, D), polls=turn == 1)
        what = f"rank {rank} has, as "
        refused("g", group(F, F, D) if last else group(F, D, F), what=what)
        refused("alike", group(F, F, n=3) if last else [*group(F, n=2), *group(F, n=4)], what=what)
        refused("alike", group(F, F, n=3) if last else [*group(F, n=2), *group(F, n=4)], what="float32[")
        agreed("g", D, F)
        refused("one", group(F) if last else group(F, D))
        refused("adasum", group(*[F] * (2 + last)), op=hvd.Adasum)
        agreed("one", F, D)

        # What the last rank submits, no rank could do; the others hear of it too, and not by a stall.
        differs(lambda: hvd.allreduce_async(ones.astype(bool) if last else ones, name="average"), "bool[4]")
        differs(lambda: hvd.allreduce_async(1j * ones if last else ones, name="min", op=hvd.Min), "complex")
        whole = ones.astype(W) if last else ones
        differs(lambda x=whole: hvd.allreduce_async(x, name="ada", op=hvd.Adasum), "int32[4]")
        differs(lambda: hvd.broadcast_async(ones, 99 if last else 0, name="root"), "from root 99")
        differs(lambda: hvd.allgather_async(np.float32(1) if last else ones, name="rows"), "float32[]")
        differs(lambda: hvd.reducescatter_async(ones, name="rs", op=hvd.Max if last else hvd.Sum), "max of")
        for wrong in (
            lambda: hvd.broadcast(ones, 99, name="root"),
            lambda: hvd.allgather(np.float32(1), name="rows"),
            lambda: hvd.reducescatter(ones, name="rs", op=hvd.Max),
        ):
            try:
                wrong()
            except ValueError:
                continue
            raise AssertionError("what all ranks get wrong was done")
        assert np.array_equal(hvd.broadcast(ones * rank, 0, name="root"), 0 * ones)

        one, counted = [1] * size, "splits are not one number of 32 bits for each rank"
        for splits, what in (
            ([2] * size, f"splits are {2 * size} rows, more than there are"),
            ([1] * (size + 1), counted),
            ([], counted),
            ([-5, *one[1:]], "splits have -5 rows for a rank"),
            ([1 << 31, *one[1:]], counted),
        ):
            mine = splits if last else one
            told(lambda s=mine: hvd.alltoall_async(np.ones(size, F), s, name="a2a"), what)
            told(lambda s=splits: hvd.scatter_async(np.ones(size, F), size - 1, s, name="deal"), what)
        uneven = np.ones(size + last, F)
        told(lambda x=uneven: hvd.alltoall_async(x, name="a2a"), f"{size + 1} rows cannot be dealt")
        many = np.empty(((size << 31) * last + size, 0), F)
        told(lambda x=many: hvd.alltoall_async(x, name="a2a"), "splits have 2147483649 rows for a rank")
        assert hvd.alltoall(np.full(size, rank), one, name="a2a")[0].tolist() == list(range(size))
        assert hvd.scatter(np.arange(size), size - 1, one, name="deal").tolist() == [rank]

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
