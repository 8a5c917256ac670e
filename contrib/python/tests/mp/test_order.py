"""Run by every rank of a real job: 50 operations by name, submitted in another order on every rank."""

import random

import numpy as np

import gorun.numpy as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()

for turn in range(5):
    order = list(range(50))
    random.Random(1000 * turn + rank).shuffle(order)
    handles = {}
    for i in order:
        data = np.full(1 + 997 * i, rank + i, "f4")
        start = (
            lambda data, i: hvd.allreduce_async(data, name=f"op{i}", op=hvd.Sum),
            lambda data, i: hvd.allgather_async(data, name=f"op{i}"),
            lambda data, i: hvd.broadcast_async(data, i % size, name=f"op{i}"),
        )[i % 3]
        handles[i] = start(data, i)
    random.Random(7777 * turn + rank).shuffle(order)  # and waited for in yet another one
    for i in order:
        got, n = hvd.synchronize(handles[i]), 1 + 997 * i
        if i % 3 == 0:
            want = np.full(n, sum(r + i for r in range(size)), "f4")
        elif i % 3 == 1:
            want = np.repeat(np.arange(size, dtype="f4") + i, n)
        else:
            want = np.full(n, i % size + i, "f4")
        assert np.array_equal(got, want), (turn, i)

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
