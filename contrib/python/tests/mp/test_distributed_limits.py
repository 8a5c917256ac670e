"""Run by every rank of a real job: torch.distributed's timeouts, barriers that watch, sparse sums, splits."""

import time
from datetime import timedelta

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gorun.torch.distributed  # noqa: F401 (registers the backend)

torch.set_num_threads(1)
dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()
NEW = int(torch.__version__.split(".")[0]) >= 2
everybody = list(range(size))


def raised(call, *texts, error=RuntimeError):
    began = time.monotonic()
    try:
        call()
    except error as found:
        for text in texts:
            assert text in str(found), found
    else:
        raise AssertionError(f"nothing was raised: {texts}")
    return time.monotonic() - began


def check_timeout():
    """A rank that waits raises when the group's time is over, whatever it waits for; other groups go on."""
    short = dist.new_group(everybody, timeout=timedelta(seconds=1))
    dist.all_reduce(torch.ones(1), group=short)
    if rank != size - 1:
        works = [dist.all_reduce(torch.ones(3), group=short, async_op=True) for _ in range(2)]
        took = raised(works[0].wait, "all_reduce timed out", "timeout of 1 s", "takes no more calls")
        assert 0.9 < took < 60, took
        assert raised(works[1].wait, "all_reduce timed out") < 1
        assert raised(lambda: dist.barrier(group=short), "takes no more calls", "all_reduce timed out") < 1
    dist.barrier()
    if rank == size - 1:  # what the others submitted counts
        t = torch.ones(3)
        dist.all_reduce(t, group=short)
        assert t.tolist() == [size] * 3
    again = dist.new_group(everybody, timeout=timedelta(seconds=1))
    dist.all_reduce(torch.ones(1), group=again)
    if rank == 0:
        raised(lambda: dist.recv(torch.ones(1), 1, group=again), "recv from rank 1 timed out", "1 s")
        raised(lambda: dist.send(torch.ones(1), 1, group=again), "takes no more calls")
    dist.barrier()


def check_failed_gradients():
    """DDP's backward() raises when the others do not come."""
    short = dist.new_group(everybody, timeout=timedelta(seconds=2))
    model = DistributedDataParallel(nn.Linear(4, 1), process_group=short)
    for _ in range(3):
        model(torch.ones(1, 4)).sum().backward()
    if rank != size - 1:
        raised(model(torch.ones(1, 4)).sum().backward, "all_reduce timed out")
    dist.barrier()


def check_watching_barrier():
    """A barrier that names the missing ranks, and leaves the group as it was."""
    group = dist.new_group(everybody, timeout=timedelta(seconds=60))
    for _ in range(3):
        group.monitored_barrier()
    if rank != size - 1:
        missing = f"Rank {size - 1} failed to pass monitoredBarrier in 500 ms"
        took = raised(lambda: group.monitored_barrier(timedelta(milliseconds=500)), missing)
        assert rank or 0.4 < took < 60, took
    dist.all_reduce(torch.ones(1), group=group)
    group = dist.new_group(everybody)
    if rank == 0:
        assert raised(lambda: group.monitored_barrier(timedelta(0)), "Rank 1 failed", "in 0 ms") < 60
    group = dist.new_group(everybody)
    if rank == 0 and size > 2:
        names = ", ".join(str(i) for i in range(1, size))
        raised(lambda: group.monitored_barrier(timedelta(milliseconds=200), True), f"Ranks {names} failed")
    dist.barrier()
    if NEW:  # before, torch asks for gloo by name
        try:
            dist.monitored_barrier()
        except ValueError as error:
            assert "GLOO" in str(error), error  # as some later ones do


def check_sparse():
    """Ranks have other non-zeros, some none; the indices of one may be there twice."""
    rows = torch.tensor([[rank, 0, 0]])
    mine = torch.sparse_coo_tensor(rows, torch.ones(3, 2), (size, 2))
    dist.all_reduce(mine)
    want = torch.ones(size, 2)
    want[0] += 2 * size
    assert mine.is_sparse and torch.equal(mine.to_dense(), want), mine
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0), (3,))
    dist.all_reduce(empty)
    assert empty.to_dense().tolist() == [0] * 3
    mean = torch.sparse_coo_tensor(rows[:, :1], torch.ones(1), (size,))
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    assert torch.allclose(mean.to_dense(), torch.full((size,), 1 / size))
    raised(lambda: dist.all_reduce(mean, op=dist.ReduceOp.MAX), "SUM and AVG", error=ValueError)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 4, sparse=True)
        self.head = nn.Linear(4, 1)

    def forward(self, words):
        return self.head(self.embedding(words).mean(1))


def check_embedding():
    """DDP with a sparse embedding trains what one rank does that sees all batches."""
    words = torch.arange(4 * size).view(size, 1, 4) % 20
    models = [DistributedDataParallel(Words()), Words()]
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            if model is models[0]:
                model(words[rank]).square().mean().backward()
                assert model.module.embedding.weight.grad.is_sparse
            else:
                (sum(model(of).square().mean() for of in words) / size).backward()
            optimizer.step()
    for got, want in zip(*(model.parameters() for model in models)):
        assert torch.allclose(got, want, atol=1e-6), (got - want).abs().max()


def check_split():
    """A group made of another one, without the others of that."""
    if not hasattr(dist, "split_group"):
        return
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    mine = halves[rank >= size // 2]
    for group in (dist.split_group(split_ranks=halves), dist.split_group(split_ranks=halves)):
        assert dist.get_process_group_ranks(group) == mine and dist.get_backend(group) == "gorun"
        t = torch.tensor([float(rank)])
        dist.all_reduce(t, group=group)
        assert t.item() == sum(mine)
    one = dist.split_group(group, [[0]], timeout=timedelta(seconds=5))
    if rank == mine[0]:
        dist.barrier(group=one)
    else:
        assert one is dist.GroupMember.NON_GROUP_MEMBER
    dist.destroy_process_group(group)


def check_counts():
    """A list with more or fewer tensors than the group has ranks is refused before anything is sent."""
    few, many = [torch.zeros(1) for _ in range(size - 1)], [torch.zeros(1) for _ in range(size + 1)]
    right = [torch.zeros(1) for _ in range(size)]
    for wrong in (few, many) if size > 1 else (many,):
        calls = [
            lambda wrong=wrong: dist.all_gather(wrong, torch.ones(1)),
            lambda wrong=wrong: dist.reduce_scatter(torch.ones(1), wrong),
            lambda wrong=wrong: dist.all_to_all(wrong, right),
            lambda wrong=wrong: dist.all_to_all(right, wrong),
        ]
        if rank == 0:  # the others take no part in it
            calls.append(lambda wrong=wrong: dist.gather(torch.ones(1), wrong))
            calls.append(lambda wrong=wrong: dist.scatter(torch.ones(1), wrong))
        for call in calls:
            text = f"has {len(wrong)} tensors, not one for each of {size} ranks"
            raised(call, text, error=ValueError)
    t = torch.ones(1)
    dist.all_reduce(t)  # ranks are in step
    assert t.item() == size


check_counts()
if size > 1:
    check_timeout()
    check_failed_gradients()
    check_watching_barrier()
    check_split()
check_sparse()
check_embedding()
dist.destroy_process_group()
if NEW:  # an older torch cannot begin again
    dist.init_process_group("gorun", timeout=timedelta(seconds=2))
    patient = dist.new_group(timeout=timedelta(seconds=60))
    if rank:
        raised(dist.barrier, "barrier timed out")
    dist.barrier(group=patient)
    dist.destroy_process_group()
print(f"rank {rank} of {size}: ok")
