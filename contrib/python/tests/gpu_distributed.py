"""A program of test_gpu_jobs: torch.distributed's backend on tensors that NCCL moves."""

import os

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gorun.torch.distributed  # noqa: F401 (registers the backend)

torch.set_num_threads(1)
dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()


def mine(value, *shape):
    return torch.full(shape, float(value))


def check_functions():
    t = mine(rank + 1, 3)
    dist.all_reduce(t)
    assert t.tolist() == [size * (size + 1) / 2] * 3
    work = dist.all_reduce(t, op=dist.ReduceOp.MAX, async_op=True)
    doubled = work.get_future().then(lambda future: 2 * future.value()[0])
    assert doubled.wait().tolist() == [size * (size + 1)] * 3 and work.wait() and work.is_completed()
    t = torch.tensor([rank])
    dist.broadcast(t, size - 1)
    assert t.item() == size - 1
    whole = torch.zeros(2 * size, dtype=torch.bfloat16)
    dist.all_gather_into_tensor(whole, whole[2 * rank : 2 * rank + 2].fill_(rank))  # in place
    assert whole[::2].tolist() == list(range(size))
    whole = mine(rank, size)
    dist.all_gather_into_tensor(whole, whole[size - 1 - rank : size - rank])  # over another rank's place
    assert whole.tolist() == list(range(size))
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(parts, mine(rank, 2))
    assert [part[1].item() for part in parts] == list(range(size))
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size))
    assert part.tolist() == [size * 2 * rank, size * (2 * rank + 1)]
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size), op=dist.ReduceOp.AVG)
    assert part.tolist() == [2 * rank, 2 * rank + 1]
    for at in (rank, size - 1 - rank):  # in place, and over another rank's
        whole = torch.arange(1.0 * size)
        dist.reduce_scatter_tensor(whole[at : at + 1], whole)
        assert whole[at] == size * rank
    got = torch.zeros(size)
    dist.all_to_all_single(got, mine(rank, size))
    assert got.tolist() == list(range(size))
    t = rank * size + torch.arange(float(size))
    dist.all_to_all_single(t, t)  # into its own input
    assert t.tolist() == [i * size + rank for i in range(size)]
    # Rank i sends i + 1 rows to each rank.
    got = torch.zeros(size * (size + 1) // 2, 2)
    dist.all_to_all_single(got, mine(rank, size * (rank + 1), 2), list(range(1, size + 1)), [rank + 1] * size)
    assert got[:, 1].tolist() == [i for i in range(size) for _ in range(i + 1)]
    got = torch.zeros(1)
    dist.scatter(got, [mine(i, 1) for i in range(size)] if rank == 0 else None, src=0)
    assert got.item() == rank
    t = mine(1, 1)
    dist.reduce(t, 0)
    assert t.item() == (1 if rank else size)
    some = dist.new_group(list(range(size - 1)))  # by the host
    if rank < size - 1:
        t = mine(rank, 2)
        dist.all_reduce(t, group=some)
        assert t.tolist() == [(size - 1) * (size - 2) / 2] * 2
    dist.barrier()


def check_errors():
    """Ranks that differ get an error, as by the host; so does a call in a captured graph. Both go on then."""
    for t in (mine(1, 2 + rank % 2), mine(1, 2).to(torch.float16 if rank else torch.float32)):
        raises("submitted int64[1]", dist.all_reduce, t)
    by_store = dist.group.WORLD.monitored_barrier
    capturing = os.path.join(os.environ["GPU_STANDIN"], "capturing")
    if rank == 0:
        with open(capturing, "w"):
            pass
    by_store()
    raises("captured into a CUDA graph", dist.all_reduce, mine(1, 2))
    raises("captured into a CUDA graph", dist.all_gather_into_tensor, mine(1, size), mine(1, 1))
    by_store()
    if rank == 0:
        os.unlink(capturing)
    by_store()
    t = mine(1, 2)
    dist.all_reduce(t)
    assert t.tolist() == [size] * 2


def raises(text, function, *arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error that contains {text}")


def check_ddp():
    """DDP takes the same steps as one process that has all batches."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
    alone = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
    alone.load_state_dict(model.state_dict())
    ddp = DistributedDataParallel(model, bucket_cap_mb=1e-4)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (ddp, alone)]
    for step in range(3):
        batches = torch.arange(size * 16.0).view(size, 2, 8).sin() + step
        for optimizer in optimizers:
            optimizer.zero_grad()
        ddp(batches[rank]).square().mean().backward()
        alone(batches.flatten(0, 1)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(a, b, atol=1e-6), (a, b)


check_functions()
check_errors()
check_ddp()
dist.destroy_process_group()
print(f"rank {rank} of {size}: ok")
