"""Run by every rank of a real job: large allreduces of torch.distributed, which ranks of a host carry out."""

import time
from datetime import timedelta

import torch
from torch import distributed as dist

import gorun.torch.distributed  # noqa: F401 (registers the backend)

torch.set_num_threads(1)
dist.init_process_group("gorun", timeout=timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.group.WORLD
total = size * (size + 1) / 2


def carried():
    """Return how many tensors have gone over the belt of this rank, whether any may still go."""
    turns = group._turns
    return (0, True) if turns is None else (turns.carried, turns._closed)


def check_sizes():
    """Tensors of any size and kind, small ones in between, one after the other and all at once."""
    sizes = 20_000, 300_000, 10, 3 * 131_072 + 5
    for _ in range(3):
        tensors = [torch.full((n,), rank + 1.0) for n in sizes]
        tensors.append(torch.full((20_000,), rank + 1, dtype=torch.int64))
        small = torch.ones(1)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        dist.all_reduce(small)
        for work in works:
            work.wait()
        for tensor in tensors:
            assert (tensor == total).all(), tensor
        mean = torch.full((5, 10_000), rank + 1.0)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        most = torch.full((20_000,), rank)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        assert small.item() == size and (mean == total / size).all() and (most == size - 1).all()


def check_callback():
    """A callback of one waits for another one that others are before."""
    seen = []

    def then(_):
        between = dist.all_reduce(torch.ones(30_000), async_op=True)
        later = torch.full((40_000,), rank + 1.0)
        dist.all_reduce(later)
        assert group._turns is None or between.is_completed()
        seen.append((later == total).all().item())

    dist.all_reduce(torch.ones(20_000), async_op=True).get_future().then(then).wait()
    assert seen == [True]


def check_mismatch():
    """What does not fit is the usual error, and others come after it."""
    expect(lambda: dist.all_reduce(torch.ones(50_000 + rank)), "float32[50000]", "float32[50001]")


def check_one_that_never_comes():
    """The first large allreduce of a group, for which others wait too long; other groups go on."""
    fresh = type(group)(group._members, group._store, timedelta(seconds=1))
    assert (fresh._turns is None) == (group._turns is None)
    if rank != size - 1:
        expect_timeout(lambda: fresh.allreduce([torch.ones(50_000)], dist.AllreduceOptions()).wait())
    small = torch.ones(1)
    dist.all_reduce(small)
    assert small.item() == size


def check_one_that_comes_late():
    """A rank that others have waited for too long; the group is over."""
    group.set_timeout(timedelta(seconds=1))
    if rank == size - 1:
        time.sleep(2)
    else:
        expect_timeout(lambda: dist.all_reduce(torch.ones(50_000)))


def expect_timeout(call):
    began = time.monotonic()
    expect(call, "all_reduce timed out", "timeout of 1 s")
    assert time.monotonic() - began > 0.9


def expect(call, *texts):
    try:
        call()
    except RuntimeError as error:
        assert all(text in str(error) for text in texts), error
    else:
        raise AssertionError(f"nothing was raised: {texts}")


def check_another_layout():
    """The memory of a tensor has gaps on one rank."""
    lone = torch.ones(20_000, 2)[:, 0] if rank == 0 else torch.ones(20_000)
    dist.all_reduce(lone)
    assert (lone == size).all()


check_sizes()
parts, closed = carried()
if group._turns is not None:  # on one host
    assert parts >= 3 * 4 and not closed, (parts, closed)
check_callback()
if size > 1:
    ends = [check_another_layout, check_mismatch]  # of the turns: the first one
    for check in ends if size % 2 else reversed(ends):
        check()
        assert carried()[1]
        check_sizes()
    check_one_that_never_comes()
    check_one_that_comes_late()
print(f"rank {rank} of {size}: ok")
