"""Run by every rank of a real job: groups that differ between ranks are refused, and the job goes on."""

import time

import numpy as np

import gorun.numpy as hvd
from gorun import basics

hvd.init()
rank, size = hvd.rank(), hvd.size()
last = rank == size - 1
F, D, W = np.float32, np.float64, np.int32


def group(*types, n=2):
    return [np.full(n, rank + 1, t) for t in types]


def refused(name, tensors, op=hvd.Sum, polls=False, what=""):
    since = time.monotonic()
    handle = hvd.grouped_allreduce_async(tensors, name=name, op=op)
    while polls and not hvd.poll(handle):
        assert time.monotonic() - since < 10, "a refused group is still polled for"
        time.sleep(0.001)
    try:
        hvd.synchronize(handle)
    except hvd.HorovodInternalError as e:
        assert f"rank {size - 1}" in str(e) and what in str(e), e
        assert time.monotonic() - since < 10
        return
    raise AssertionError(f"{name}: not refused")


def agreed(name, *types):
    for got in hvd.grouped_allreduce(group(*types), name=name, op=hvd.Sum):
        assert np.array_equal(got, np.full(2, size * (size + 1) // 2)), got


if size > 1:
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
    hvd.barrier()
    assert not basics.world().session._open, "something of a refused group is in flight"

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
