"""Run by every rank of a real job: torch.distributed's functions, DDP and what is built on it, on the engine.

Gloo, in a group of the same ranks, shows what is right where that is more than arithmetic.
"""

import functools
import operator
import os
import threading
import time
import warnings
from datetime import timedelta

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import gorun.torch.distributed  # registers the backend
from gorun import basics
from gorun.counters import ACTIVITY, SINCE, WAITING_IN_GORUN, counters

torch.set_num_threads(1)
warnings.simplefilter("ignore")  # torch's, of names that are to go
NEW = int(torch.__version__.split(".")[0]) >= 2
dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "gorun"


def mine(value, *shape):
    return torch.full(shape, float(value))


def raises(error, text, call, *arguments, **options):
    """Check that a call raises."""
    try:
        call(*arguments, **options)
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(f"nothing was raised: {text}")


def check_functions():
    t = mine(rank + 1, 3)
    dist.all_reduce(t)
    assert t.tolist() == [size * (size + 1) / 2] * 3
    check_group(list(range(size)), dist.group.WORLD)
    t = torch.tensor([rank])
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    assert t.item() == size - 1
    bits = [64 + 2**i for i in range(size)]
    for op, of in (("BAND", operator.and_), ("BOR", operator.or_), ("BXOR", operator.xor)):
        t = torch.tensor([bits[rank]])
        dist.all_reduce(t, op=getattr(dist.ReduceOp, op))
        assert t.item() == functools.reduce(of, bits), op
    op = gorun.torch.distributed.group._op  # all_reduce() lacks its factor
    raises(ValueError, "PREMUL_SUM", op, dist.ReduceOp.PREMUL_SUM)
    whole = torch.zeros(2 * size)
    dist.all_gather_into_tensor(whole, mine(rank, 2))
    assert whole[::2].tolist() == list(range(size))
    part = torch.zeros(2)
    dist.reduce_scatter(part, list(torch.arange(2.0 * size).split(2)), op=dist.ReduceOp.MAX)
    assert part.tolist() == [2 * rank, 2 * rank + 1]
    parts = [torch.zeros(1) for _ in range(size)]
    dist.all_to_all(parts, [mine(rank, 1) for _ in range(size)])
    assert [part.item() for part in parts] == list(range(size))
    objects = [rank]
    dist.broadcast_object_list(objects, 0)
    assert objects == [0]
    objects = [None]
    dist.scatter_object_list(objects, [{"rank": i} for i in range(size)] if rank == 0 else [None] * size, 0)
    assert objects == [{"rank": rank}]
    objects = [None] * size
    dist.gather_object(rank, objects if rank == 0 else None, 0)
    assert rank or objects == list(range(size))
    check_works()
    if size > 1:
        check_transfers()
        raises(RuntimeError, "float32[2]", dist.all_reduce, torch.ones(rank + 1))


def check_works():
    """What an asynchronous call returns, and several tensors in one."""
    work = dist.all_reduce(mine(rank, 2), async_op=True)
    twice = work.get_future().then(lambda future: 2 * future.value()[0])
    total = size * (size - 1) / 2
    assert twice.wait().tolist() == [2 * total] * 2
    assert work.result()[0].tolist() == [total] * 2 and work.is_completed() and work.is_success()

    def again(future):  # in the thread that would bring this one too
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    work = dist.all_reduce(mine(1, 2), async_op=True)
    assert work.get_future().then(again).wait().tolist() == [size * size] * 2
    pair = [mine(rank, 2), mine(10 + rank, 3)]
    dist.all_reduce_coalesced(pair)
    assert [t[0].item() for t in pair] == [total, 10 * size + total]
    pairs = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(pairs, [mine(rank, 2), mine(10 + rank, 3)])
    assert [[t.tolist() for t in pair] for pair in pairs] == [[[r] * 2, [10 + r] * 3] for r in range(size)]
    if hasattr(dist, "gather_single"):
        whole = torch.zeros(2 * size) if rank == 0 else None
        dist.gather_single(mine(rank, 2), whole)
        assert rank or whole[::2].tolist() == list(range(size))
    if size == 1:
        return
    if rank == 0:
        late = dist.all_reduce(torch.ones(1), async_op=True)
        transfer = dist.irecv(torch.ones(1), 1)
        for work in late, transfer:
            raises(RuntimeError, "not over after 0.05 s", work.wait, timedelta(seconds=0.05))
        dist.barrier(group=gloo)
        late.wait(timedelta(seconds=60))
        transfer.wait(timedelta(seconds=60))
    else:
        dist.barrier(group=gloo)
        dist.all_reduce(torch.ones(1))
        if rank == 1:
            dist.send(torch.ones(1), 0)


def check_autograd():
    """No result counts as a change for autograd, as with gloo: what backward needs may be reduced."""
    for length in (4, 100000):
        weight = torch.ones(length, requires_grad=True)
        t, rows = mine(rank, length), mine(rank, size, length)
        parts, whole = list(torch.zeros(size, length)), torch.zeros(size * length)
        loss = (weight * t).sum() + (weight * rows).sum()
        dist.all_reduce(t)
        dist.broadcast(t, 0)
        dist.reduce(t, 0)
        dist.all_gather(parts, t)
        dist.all_gather_into_tensor(whole, t)
        dist.reduce_scatter_tensor(t, whole)
        dist.reduce_scatter(t, parts)
        dist.all_to_all_single(rows, mine(rank, size, length))
        dist.all_to_all(parts, [mine(rank, length) for _ in range(size)])
        dist.scatter(t, parts if rank == 0 else None, 0)
        dist.gather(t, parts if rank == 0 else None, 0)
        if size > 1:
            sent = dist.isend(mine(rank, length), (rank + 1) % size)
            dist.recv(t, rank - 1 if rank else size - 1)
            sent.wait()
        assert (t._version, rows._version, parts[0]._version, whole._version) == (0, 0, 0, 0)
        loss.backward()
    halves = (2 * torch.ones(2, 4, requires_grad=True)).unbind()
    dist.all_reduce(halves[0])
    assert halves[0].tolist() == [2 * size] * 4


def check_memory():
    """Nothing keeps the tensors of calls that are over."""
    for _ in range(20):
        dist.all_reduce(torch.ones(1 << 18))
    before = resident()
    for _ in range(200):
        dist.all_reduce(torch.ones(1 << 18))  # 1 MiB each
    grown = resident() - before
    assert grown < 64 << 20, f"{grown >> 20} MiB more after 200 calls"


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
    t = torch.zeros(5)
    coming = dist.irecv(t, left).get_future().then(lambda future: 2 * future.value()[0])
    going = dist.isend(mine(rank, 5), right)
    assert going.get_future().wait()[0][0].item() == rank and going.wait()
    assert coming.wait().tolist() == [2 * left] * 5 and t.tolist() == [left] * 5
    if rank == 0:
        t = torch.zeros(1)
        waiting = dist.irecv(t, 1)
        dist.all_reduce(torch.ones(1))  # which does not wait for what came before it
        dist.send(torch.ones(1), 1)
        waiting.wait()
        assert t.item() == 2 and waiting.is_completed()
        t = torch.zeros(1)
        for waiting in dist.irecv(t, 1), dist.isend(torch.ones(1), 1):  # the polls have to read
            until(waiting.is_completed)
        assert t.item() == 3
    else:
        dist.all_reduce(torch.ones(1))
        if rank == 1:
            t = torch.zeros(1)
            dist.recv(t, 0)
            dist.send(2 * t, 0)
            dist.send(3 * t, 0)
            dist.recv(t, 0)


def until(over):
    end = time.monotonic() + 60
    while not over():
        assert time.monotonic() < end, "it never ends"
        time.sleep(0.001)


def check_any_source(group, ranks):
    """From any rank: the first rank gets all that others send, in their order, and by tags."""
    if rank != ranks[0]:
        works = [dist.isend(mine(10 * rank + i, 2 + i), ranks[0], group=group) for i in range(3)]
        works.append(dist.isend(mine(rank, 5), ranks[0], group=group, tag=7))
        works.append(dist.isend(mine(-rank, 1), ranks[0], group=group))
        works += [dist.isend(mine(i, 1), ranks[0], group=group, tag=9) for i in range(2)]
        for work in works:
            work.wait()
        return
    others = sorted(ranks[1:])
    t = torch.zeros(5)
    assert sorted(dist.recv(t, group=group, tag=7) for _ in others) == others
    for i in range(3):  # the next of a rank may have another shape
        t = torch.zeros(2 + i)
        for _ in others:
            source = dist.recv(t, group=group)
            assert t.tolist() == [10 * source + i] * (2 + i), (source, t)
    works = [dist.irecv(torch.zeros(1), group=group) for _ in others]
    for work in works:
        work.wait()
    assert sorted(ranks[work.source_rank()] for work in works) == others
    got = [torch.zeros(1) for _ in range(2 * len(others))]
    works = [dist.irecv(t, group=group, tag=9) for t in got]
    for work in reversed(works):  # the first call gets the first tensor, whichever is waited for first
        work.wait()
    for of in {work.source_rank() for work in works}:
        assert [t.item() for t, work in zip(got, works) if work.source_rank() == of] == [0, 1]
    if NEW:
        began, never = time.monotonic(), dist.irecv(torch.zeros(1), group=group)
        raises(RuntimeError, "not over after 0.1 s", never.wait, timedelta(seconds=0.1))
        assert 0.1 <= time.monotonic() - began < 60


def check_group(ranks, group):
    """All functions among some of the ranks; a group's own rank is another one than the job's."""
    n, me = len(ranks), ranks.index(rank)
    assert (dist.get_rank(group), dist.get_world_size(group), dist.get_backend(group)) == (me, n, "gorun")
    t = mine(rank + 1, 3)
    dist.all_reduce(t, op=dist.ReduceOp.AVG, group=group)
    assert torch.allclose(t, torch.full((3,), sum(ranks) / n + 1)), t
    for root in ranks:
        t = torch.tensor([rank])
        dist.broadcast(t, root, group=group)
        assert t.item() == root
    parts = [torch.zeros(2) for _ in ranks]
    dist.all_gather(parts, mine(rank, 2), group=group)
    assert [part[0].item() for part in parts] == ranks
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * n), group=group)
    assert part.tolist() == [n * 2 * me, n * (2 * me + 1)]
    got = torch.zeros(n)
    dist.all_to_all_single(got, mine(rank, n), group=group)
    assert got.tolist() == ranks
    got = torch.zeros(1)
    dist.scatter(got, [mine(r, 1) for r in ranks] if me == 0 else None, src=ranks[0], group=group)
    assert got.item() == rank
    parts = [torch.zeros(1) for _ in ranks] if rank == ranks[-1] else None
    dist.gather(mine(rank, 1), parts, dst=ranks[-1], group=group)
    assert parts is None or [part.item() for part in parts] == ranks
    t = torch.ones(1)
    dist.reduce(t, ranks[-1], group=group)
    assert t.item() == (n if rank == ranks[-1] else 1)
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    assert objects == [{"rank": r} for r in ranks]
    if n > 1:
        sent = dist.isend(mine(rank, 4), ranks[(me + 1) % n], group=group)
        t = torch.zeros(4)
        dist.recv(t, ranks[me - 1], group=group)
        sent.wait()
        assert t.tolist() == [ranks[me - 1]] * 4
        check_any_source(group, ranks)
    dist.barrier(group=group)


def check_waiting():
    """What waits for the last rank, which comes late, counts as that, and what it computes does not."""
    late, model = 0.3, DistributedDataParallel(nn.Linear(8, 8))
    large, small = torch.zeros(1 << 18), torch.zeros(3)
    calls = {
        "all_reduce": lambda: dist.all_reduce(small),
        "of a large tensor": lambda: dist.all_reduce(large),
        "asynchronous": lambda: dist.all_reduce(small, async_op=True).wait(),
        "with a timeout": lambda: dist.all_reduce(small, async_op=True).wait(timedelta(seconds=60)),
        "all_gather_object": lambda: dist.all_gather_object([None] * size, rank),
        "DDP": lambda: model(torch.ones(1, 8)).sum().backward(),
        "recv": lambda: dist.send(small, 0) if rank == size - 1 else rank or dist.recv(small, size - 1),
        "from any": lambda: dist.send(small, 0) if rank == size - 1 else rank or dist.recv(small),
        "computing": lambda: compute(dist.all_reduce(small, async_op=True)),
    }

    if NEW:
        calls["monitored_barrier"] = dist.monitored_barrier

    def compute(work):
        end = time.monotonic() + 2 * late
        while rank != size - 1 and time.monotonic() < end:
            sum(range(1000))
        work.wait()

    for name, call in calls.items():
        dist.barrier()
        before = counters.totals()
        if rank == size - 1:
            time.sleep(late)
        call()
        after = counters.totals()
        waited = (after["others"] - before["others"]) / 1e9
        counts = rank == 0 and name != "computing"
        assert (waited > late / 2) == counts or 0 < rank < size - 1, (name, rank, waited)
        assert after["hidden"] >= before["hidden"], name


def check_looking():
    """Who waits for any sender looks for one again and again: that is one wait, and no operation."""
    operations, began = counters.totals()["operations"], counters.waits()
    assert basics.world().session.senders("of nobody") == ()
    assert [counters._words[at // 8] for at in (ACTIVITY, SINCE)] == [WAITING_IN_GORUN, began]
    assert counters.totals()["operations"] == operations
    counters.blocked(began)


def check_groups():
    """Groups that overlap; one of all ranks; one that others do not even hear of, while they go on."""
    for of in (range(0, size, 2), range(1, size), range(size), range(size)):
        ranks = list(of)
        group = dist.new_group(ranks)  # at the end, the same ranks in another one
        if rank in ranks:
            check_group(ranks, group)
    for _ in range(3):
        group = dist.new_group(list(range(size)))
        dist.barrier(group=group)
        dist.destroy_process_group(group)
    if NEW:
        pair = [of for of in (rank & ~1, rank | 1) if of < size]  # no other rank makes it
        check_group(pair, dist.new_group(pair, use_local_synchronization=True))
    # All at once: what is under way in one group waits for nothing in the other.
    first, second = dist.new_group([0, size - 1]), dist.new_group(list(range(size)))
    both = [mine(1, 1000), mine(2, 1000)]
    works = []
    if rank in (0, size - 1):
        works.append(dist.all_reduce(both[0], group=first, async_op=True))
    works.append(dist.all_reduce(both[1], group=second, async_op=True))
    for work in reversed(works):
        work.wait()
    assert both[1][0].item() == 2 * size and both[0][0].item() == (2 if len(works) == 2 else 1)
    if size > 2:
        try:
            dist.new_group([1, 0], sort_ranks=False)
        except TypeError:
            pass  # an older torch always sorts them
        except ValueError as error:
            assert rank < 2 and "ascending order" in str(error), error
        else:
            assert rank > 1


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 300), nn.ReLU(), nn.Linear(300, 4))


def batch(step, of):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + of))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def train(model, ranks, steps=3, make=sgd):
    optimizer = make(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        (sum(model(batch(step, of)).square().mean() for of in ranks) / len(ranks)).backward()
        optimizer.step()
    return model


def check_training():
    """N ranks train what one does that sees all their batches."""
    alone = train(make_model(), range(size)).parameters()
    for got, want in zip(train(DistributedDataParallel(make_model()), [rank]).parameters(), alone):
        assert torch.allclose(got, want, atol=1e-5), "DDP"
    if size > 1:
        check_pairs()


def check_pairs():
    """DDP over pairs of ranks: each pair trains by itself."""
    pairs = [[of for of in (first, first + 1) if of < size] for first in range(0, size, 2)]
    groups = [dist.new_group(pair) for pair in pairs]
    pair = pairs[rank // 2]
    model = train(DistributedDataParallel(make_model(), process_group=groups[rank // 2]), [rank])
    for got, want in zip(model.parameters(), train(make_model(), pair).parameters()):
        assert torch.allclose(got, want, atol=1e-5), "DDP over a pair"


def power(model, group):
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def builtin(model, _):
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)


def hook(name):
    return lambda model, group: model.register_comm_hook(group, getattr(default_hooks, name))


HOOKS = {
    "allreduce": hook("allreduce_hook"), "fp16": hook("fp16_compress_hook"), "PowerSGD": power,
    "built in": builtin, **({"bf16": hook("bf16_compress_hook")} if NEW else {}),
}  # fmt: skip


def with_hook(register, group):
    model = DistributedDataParallel(make_model(), process_group=group)
    register(model, group)
    return train(model, [rank], steps=5)


def with_zero(group):
    model = DistributedDataParallel(make_model(), process_group=group)
    optimizer = functools.partial(
        ZeroRedundancyOptimizer, optimizer_class=torch.optim.Adam, process_group=group, lr=0.01
    )
    return train(model, [rank], make=optimizer)


def with_join(group):
    """Ranks have more batches than those before."""
    model = DistributedDataParallel(make_model(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.SGD, process_group=group, lr=0.1
    )
    with Join([model, optimizer]):
        for step in range(2 + rank):
            optimizer.zero_grad()
            model(batch(step, rank)).square().mean().backward()
            optimizer.step()
    return model


class Either(nn.Module):
    """Of two layers the even ranks use one and the odd ranks the other, and all share statistics."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.layers[rank % 2](x))


def with_unused(group):
    return train(DistributedDataParallel(Either(), process_group=group, find_unused_parameters=True), [rank])


def with_no_sync(group):
    model = DistributedDataParallel(make_model(), process_group=group, gradient_as_bucket_view=True)
    with model.no_sync():
        model(batch(9, rank)).square().mean().backward()
    return train(model, [rank])


def check_as_gloo():
    """What is built on DDP computes the same."""
    makers = {name: functools.partial(with_hook, register) for name, register in HOOKS.items()}
    makers.update(zero=with_zero, join=with_join, unused=with_unused, no_sync=with_no_sync)
    for name, make in makers.items():
        ours, theirs = make(dist.group.WORLD), make(gloo)
        tolerance = 1e-2 if name in ("fp16", "bf16", "PowerSGD") and size > 2 else 1e-6
        for got, want in zip(ours.parameters(), theirs.parameters()):
            assert torch.allclose(got, want, atol=tolerance), (name, (got - want).abs().max().item())


def main():
    check_functions()
    if size > 1:
        check_groups()
        check_looking()
        check_waiting()
    check_autograd()
    check_memory()
    check_training()
    check_as_gloo()
    dist.destroy_process_group()
    if NEW:  # which ends the groups; before it, they end with the process
        assert not [thread for thread in threading.enumerate() if thread.name == "gorun torch.distributed"]
    print(f"rank {rank} of {size}: ok")


gloo = dist.new_group(backend="gloo")
if __name__ == "__main__":
    main()
