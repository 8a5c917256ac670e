"""Run by every rank of a real job, with torch 2: torch.distributed, DDP and FSDP on the engine."""

import functools
import operator
import threading

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gorun.torch.distributed  # registers the backend

torch.set_num_threads(1)
dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "gorun"


def mine(value, *shape):
    return torch.full(shape, float(value))


def check_functions():
    t = mine(rank + 1, 3)
    dist.all_reduce(t)
    assert t.tolist() == [size * (size + 1) / 2] * 3
    t = mine(rank + 1, 3)
    dist.all_reduce(t, op=dist.ReduceOp.AVG, async_op=True).wait()
    assert t.tolist() == [(size + 1) / 2] * 3
    t = torch.tensor([rank])
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    assert t.item() == size - 1
    bits = [64 + 2**i for i in range(size)]
    for op, of in (("BAND", operator.and_), ("BOR", operator.or_), ("BXOR", operator.xor)):
        t = torch.tensor([bits[rank]])
        dist.all_reduce(t, op=getattr(dist.ReduceOp, op))
        assert t.item() == functools.reduce(of, bits), op
    try:
        gorun.torch.distributed._op(dist.ReduceOp.PREMUL_SUM)  # all_reduce() lacks its factor
    except ValueError as error:
        assert "PREMUL_SUM" in str(error), error
    else:
        raise AssertionError("reduced by PREMUL_SUM")
    t = torch.tensor([rank])
    dist.broadcast(t, size - 1)
    assert t.item() == size - 1
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(parts, mine(rank, 2))
    assert [part[0].item() for part in parts] == list(range(size))
    whole = torch.zeros(2 * size)
    dist.all_gather_into_tensor(whole, mine(rank, 2))
    assert whole[::2].tolist() == list(range(size))
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size))
    assert part.tolist() == [size * 2 * rank, size * (2 * rank + 1)]
    dist.reduce_scatter(part, list(torch.arange(2.0 * size).split(2)), op=dist.ReduceOp.MAX)
    assert part.tolist() == [2 * rank, 2 * rank + 1]
    got = torch.zeros(size)
    dist.all_to_all_single(got, mine(rank, size))
    assert got.tolist() == list(range(size))
    parts = [torch.zeros(1) for _ in range(size)]
    dist.all_to_all(parts, [mine(rank, 1) for _ in range(size)])
    assert [part.item() for part in parts] == list(range(size))
    got = torch.zeros(1)
    dist.scatter(got, [mine(i, 1) for i in range(size)] if rank == 0 else None, src=0)
    assert got.item() == rank
    parts = [torch.zeros(1) for _ in range(size)] if rank == 0 else None
    dist.gather(mine(rank, 1), parts, dst=0)
    assert rank or [part.item() for part in parts] == list(range(size))
    t = torch.ones(1)
    dist.reduce(t, 0)
    assert t.item() == (1 if rank else size)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(size)]
    objects = [rank]
    dist.broadcast_object_list(objects, 0)
    assert objects == [0]
    dist.barrier()
    if size > 1:  # some of the ranks, by gloo
        pair = dist.new_group([0, 1])
        if rank < 2:
            t = torch.ones(1)
            dist.all_reduce(t, group=pair)
            assert t.item() == 2
    if size > 1:
        check_transfers()
    t = torch.ones(rank + 1)
    if size > 1:
        try:
            dist.all_reduce(t)
        except RuntimeError as error:
            assert "float32[2]" in str(error), error
        else:
            raise AssertionError("different shapes were added up")


def check_transfers():
    """Around the ring: both ways, by tags, as a batch, and late while others are under way."""
    right, left = (rank + 1) % size, (rank - 1) % size
    sent = [dist.isend(mine(10 * rank + i, 1000), right, tag=i) for i in range(3)]
    got = [torch.zeros(1000) for _ in range(3)]
    for i in (2, 0, 1):
        dist.recv(got[i], left, tag=i)
    for work in sent:
        work.wait()
    assert [t[0].item() for t in got] == [10 * left + i for i in range(3)]
    t = torch.zeros(5)
    operations = [dist.P2POp(dist.isend, mine(rank, 5), left), dist.P2POp(dist.irecv, t, right)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert t.tolist() == [right] * 5
    if rank == 0:
        t = torch.zeros(1)
        waiting = dist.irecv(t, 1)
        dist.all_reduce(torch.ones(1))  # which does not wait for what came before it
        dist.send(torch.ones(1), 1)
        waiting.wait()
        assert t.item() == 2 and waiting.is_completed()
    else:
        dist.all_reduce(torch.ones(1))
        if rank == 1:
            t = torch.zeros(1)
            dist.recv(t, 0)
            dist.send(2 * t, 0)
    try:
        dist.recv(torch.zeros(1))
    except (NotImplementedError, RuntimeError):
        pass
    else:
        raise AssertionError("received from whomever")


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 300), nn.ReLU(), nn.Linear(300, 4))


def batch(step, of):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + of))


def train(model, ranks):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (sum(model(batch(step, of)).square().mean() for of in ranks) / len(ranks)).backward()
        optimizer.step()
    return model


def check_training():
    """N ranks train what one does that sees all their batches."""
    alone = [p.detach() for p in train(make_model(), range(size)).parameters()]
    for got, want in zip(train(DistributedDataParallel(make_model()), [rank]).parameters(), alone):
        assert torch.allclose(got, want, atol=1e-5), "DDP"
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    for got, want in zip(train(model, [rank]).parameters(), alone):
        assert torch.allclose(got.full_tensor(), want, atol=1e-5), "FSDP"


check_functions()
check_training()
dist.destroy_process_group()
assert not [thread for thread in threading.enumerate() if thread.name == "gorun torch.distributed"]
print(f"rank {rank} of {size}: ok")
