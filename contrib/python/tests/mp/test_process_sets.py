"""Run by every rank of a real job: process sets. Exits non-zero if one is wrong."""

import os

import torch

import gorun.torch as hvd
from gorun import constants, process_sets

torch.set_num_threads(1)
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
first, second = hvd.ProcessSet([0]), hvd.ProcessSet([1, 0, 2])
size = int(os.environ.get("HOROVOD_SIZE", "0"))
hvd.init(process_sets=[first] * (size > 1) + [second] * (size > 3))
rank = hvd.rank()
assert size == hvd.size()


def refused(error, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{function.__name__}{args} was accepted")


def check(process_set):
    """Every operation among the members; the others do nothing."""
    members = process_set.ranks
    n = len(members)
    if rank not in members:
        assert not process_set.included()
        refused(ValueError, process_set.rank)
        refused(ValueError, hvd.allreduce, torch.ones(1), process_set=process_set)
        return
    assert process_set.included() and process_set.rank() == members.index(rank) and process_set.size() == n
    mine = torch.full((2 * n + 1, 2), rank + 1.0)
    total = sum(r + 1.0 for r in members)
    got = hvd.allreduce(mine, name="x", op=hvd.Sum, process_set=process_set)
    assert torch.equal(got, torch.full_like(mine, total)), got
    got = hvd.allreduce(mine, process_set=process_set)
    assert torch.allclose(got, torch.full_like(mine, total / n))
    got = hvd.allgather(mine[: rank + 1], process_set=process_set)
    assert torch.equal(got, torch.cat([torch.full((min(r + 1, 2 * n + 1), 2), r + 1.0) for r in members]))
    root = members[-1]
    assert torch.equal(hvd.broadcast(mine, root, process_set=process_set), torch.full_like(mine, root + 1.0))
    got, received = hvd.alltoall(mine[:n], torch.ones(n, dtype=torch.int32), process_set=process_set)
    assert got[:, 0].tolist() == [r + 1.0 for r in members] and received.tolist() == [1] * n
    got = hvd.reducescatter(mine, op=hvd.Sum, process_set=process_set)
    assert torch.equal(got, torch.full((2 + (process_set.rank() == 0), 2), total)), got
    outside = [r for r in range(size) if r not in members]
    if outside:
        refused(ValueError, hvd.broadcast, mine, outside[0], process_set=process_set)
    hvd.barrier(process_set=process_set)


if size > 1:
    assert first.process_set_id == 1
    check(first)
if size > 3:
    assert second.process_set_id == 2 and second.ranks == [0, 1, 2]
    check(second)

added = []
if size > 1:
    for members in [[r] for r in range(1, size)] + [[r, size - 1] for r in range(size - 1) if size > 2]:
        added.append(hvd.add_process_set(members))
        check(added[-1])
    ids = [process_set.process_set_id for process_set in added]
    assert len(set(ids)) == len(ids) and min(ids) > 1
    numbers = hvd.allgather(torch.tensor([ids]))
    assert torch.equal(numbers, torch.tensor([ids] * size)), "ranks have other numbers for a process set"
    refused(ValueError, hvd.add_process_set, [0])
    for process_set in added:
        check(process_set)

    # Sets that overlap work at the same time, in another order on every rank.
    pending = []
    for process_set in added if rank % 2 else added[::-1]:
        if process_set.included():
            handle = hvd.allreduce_async(torch.ones(1000), name="y", op=hvd.Sum, process_set=process_set)
            pending.append((handle, process_set.size()))
    for handle, n in pending:
        assert torch.equal(hvd.synchronize(handle), torch.full((1000,), float(n)))

    for process_set in added:
        assert hvd.remove_process_set(process_set) and process_set.process_set_id is None
        assert not hvd.remove_process_set(process_set)
        refused(ValueError, hvd.allreduce, torch.ones(1), process_set=process_set)
    if size > 2:  # ranks that name other members get an error, and go on
        refused(hvd.HorovodInternalError, hvd.add_process_set, [min(rank, 1), 2])
    again = hvd.add_process_set([size - 1])
    assert again.process_set_id == max(ids) + 1
    check(again)
refused(ValueError, hvd.add_process_set, range(size))
refused(ValueError, hvd.add_process_set, [size])
assert not hvd.remove_process_set(hvd.global_process_set)

# Sets that only their members know of: at once, in another order on every rank, also of the same ranks.
groups = [[0, size - 1], list(range(size)), [rank, rank ^ 1], [0, size - 1]] * (size > 1)
declared = [
    process_sets.declare(members, constants.DECLARED + 1000 * number + min(members))
    for number, members in list(enumerate(groups))[:: rank % 2 * 2 - 1]
    if rank in members and max(members) < size
]
pending = [hvd.allreduce_async(torch.ones(9), name="z", op=hvd.Sum, process_set=s) for s in declared]
for handle, process_set in zip(pending, declared):
    assert torch.equal(hvd.synchronize(handle), torch.full((9,), float(process_set.size())))
for process_set in sorted(declared, key=lambda s: s.process_set_id // 1000):
    check(process_set)
if size > 1:
    refused(ValueError, process_sets.declare, [(rank + 1) % size], constants.DECLARED)
    refused(ValueError, process_sets.declare, [rank, size], constants.DECLARED)

assert torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(size)))
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
