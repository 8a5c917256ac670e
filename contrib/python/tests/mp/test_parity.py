"""Run by every rank of a real job: each function of horovod.torch, and each rule of its semantics.

One check a rule, in one table, so that what is covered can be read and counted. Rank 0 prints the table. The
same program runs under stock Horovod, without the checks of what Horovod refuses: so the rules are Horovod's,
not ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
import warnings
from pathlib import Path

import horovod
import horovod.torch as module
import torch
from torch import nn

STOCK = not hasattr(module, "BitAnd")
RULES: list[tuple] = []


class Recorder:
    """horovod.torch, and which of its names were used."""

    used: set[str] = set()

    def __init__(self, inner, prefix=""):
        self._inner, self._prefix = inner, prefix

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        if isinstance(value, types.ModuleType):
            return Recorder(value, f"{self._prefix}{name}.")
        self.used.add(self._prefix + name)
        return value


hvd = Recorder(module)


def rule(topic, text, ours=False):
    """Enter a check; ours: of what stock Horovod, with Gloo, does not do, or not survive."""

    def enter(check):
        RULES.append((topic, text, ours, check))
        return check

    return enter


def refused(errors, call, *args, text="", **kwargs):
    """Check that a call raises."""
    try:
        call(*args, **kwargs)
    except errors as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{getattr(call, '__name__', call)}{args} was accepted")


def failed(start, text=""):
    """Check that an operation starts, and fails at synchronize()."""
    handle = start()
    refused(hvd.HorovodInternalError, hvd.synchronize, handle, text=text)


def same(got, want, tolerance=0.0):
    assert got.dtype == want.dtype and got.shape == want.shape, (got, want)
    ok = torch.allclose(got, want, atol=tolerance) if tolerance else torch.equal(got, want)
    assert ok, (got, want)


def same_bits(*tensors):
    """Check that all ranks have the same."""
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])[None]
    same(hvd.allgather(flat), flat.expand(size, -1).contiguous())


def value(r, *shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (((torch.arange(count) % 7) + 1) * (r + 1)).reshape(shape).to(dtype)


def mine(*shape, dtype=torch.float32):
    return value(rank, *shape, dtype=dtype)


def total(*shape, dtype=torch.float32):
    return sum(value(r, *shape, dtype=dtype) for r in range(size)).to(dtype)


def gradient(of, *shape):
    """Return what backward() of a sum brings."""
    x = mine(*shape).requires_grad_()
    result = of(x)
    for part in [result] if isinstance(result, torch.Tensor) else result:
        part.backward(torch.ones_like(part), retain_graph=True)
    return x.grad


REDUCED = (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
MOVED = (torch.uint8, torch.int8, torch.int16, *REDUCED)
WIDER = (torch.bfloat16, torch.bool)

# Before init(), with an environment that is set in the process.
os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
torch.set_num_threads(1)
assert not hvd.is_initialized()
for early in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
    refused(ValueError, getattr(hvd, early), text="Horovod has not been initialized; use hvd.init().")
hvd.init()
rank, size = hvd.rank(), hvd.size()


@rule("basics", "rank and size, on this host and across hosts")
def _():
    assert hvd.is_initialized() and 0 <= rank < size
    assert 0 <= hvd.local_rank() < hvd.local_size() <= size
    assert 0 <= hvd.cross_rank() < hvd.cross_size() <= size
    places = hvd.allgather(torch.tensor([[hvd.local_rank(), hvd.cross_rank()]])).tolist()
    assert len({tuple(place) for place in places}) == size, places
    ranks_of = [sum(cross == host for _, cross in places) for host in {cross for _, cross in places}]
    assert hvd.mpi_ops.is_homogeneous() == (len(set(ranks_of)) == 1), places
    hvd.init()  # a second call does nothing
    assert (hvd.rank(), hvd.size()) == (rank, size)


@rule("process sets", "the global one names all ranks")
def _():
    assert list(hvd.global_process_set.ranks) == list(range(size))


@rule("groups", "the rows of one tensor are a group")
def _():
    rows = mine(3, 4)
    for got, row in zip(hvd.grouped_allreduce(rows, op=hvd.Sum), total(3, 4)):
        same(got, row)
    for got, row in zip(hvd.grouped_allgather(rows), rows):
        same(got[4 * rank : 4 * rank + 4], row)
    whole = torch.stack([value(r, 4 * size) for r in range(size)]).sum(0)
    (got,) = hvd.grouped_reducescatter(mine(4 * size)[None], op=hvd.Sum)
    same(got, whole[4 * rank : 4 * rank + 4])


@rule("basics", "what was built in")
def _():
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.mpi_built() and not hvd.mpi_enabled()
    assert not any((hvd.nccl_built(), hvd.ddl_built(), hvd.ccl_built(), hvd.cuda_built(), hvd.rocm_built()))
    refused(ValueError, hvd.mpi_threads_supported, text="Horovod MPI is not enabled")
    hvd.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", module.__file__, "mpi_lib_v2")
    ops = hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product
    assert ops == tuple(range(6)) and horovod.__version__ == "0.28.1"


@rule("basics", "the timeline is switched on and off at run time")
def _():
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"parity-{os.getpid()}"
    folder.mkdir()
    try:
        hvd.start_timeline(str(folder / "t.json"), mark_cycles=True)
        hvd.allreduce(torch.ones(10), name="timed")
        hvd.stop_timeline()
        if not STOCK:  # there, rank 0 alone writes one, and some time later
            text = "".join(path.read_text() for path in folder.iterdir())
            for word in ("allreduce.timed", "NEGOTIATE_ALLREDUCE", "ALLREDUCE"):
                assert word in text, word
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@rule("average", "the default is the average over all ranks")
def _():
    same(hvd.allreduce(mine(5)), total(5) / size, 1e-5)
    same(hvd.allreduce(mine(5), op=hvd.Average), total(5) / size, 1e-5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same(hvd.allreduce(mine(5), average=True), total(5) / size, 1e-5)
        same(hvd.allreduce(mine(5), average=False), total(5))
    assert any(issubclass(warning.category, DeprecationWarning) for warning in seen)
    refused(ValueError, hvd.allreduce, mine(5), average=True, op=hvd.Sum, text="supersedes average")


@rule("average", "of integers is cut off toward zero")
def _():
    for dtype in (torch.int32, torch.int64):
        got = hvd.allreduce(torch.tensor([-7 - rank, 7 + rank], dtype=dtype))
        up = sum(7 + r for r in range(size)) // size
        assert got.tolist() == [-up, up], got


@rule("reductions", "sum of every type and shape, the same bits on every rank")
def _():
    for dtype in REDUCED:
        for shape in ((), (17,), (33, 65), (4, 5, 6)):
            same(hvd.allreduce(mine(*shape, dtype=dtype), op=hvd.Sum), total(*shape, dtype=dtype))
    noise = torch.randn(100_000, generator=torch.Generator().manual_seed(rank))
    same_bits(hvd.allreduce(noise))


@rule("reductions", "least, largest and product")
def _():
    for dtype in REDUCED:
        same(hvd.allreduce(mine(9, dtype=dtype), op=hvd.Max), value(size - 1, 9, dtype=dtype))
        same(hvd.allreduce(mine(9, dtype=dtype), op=hvd.Min), value(0, 9, dtype=dtype))
        factor = torch.full((3,), rank + 1).to(dtype)
        product = torch.full((3,), float(torch.arange(1, size + 1).prod())).to(dtype)
        same(hvd.allreduce(factor, op=hvd.Product), product)


@rule("reductions", "sums of bfloat16 and truth values", ours=True)
def _():
    same(hvd.allreduce(mine(9, dtype=torch.bfloat16), op=hvd.Sum), total(9, dtype=torch.bfloat16))
    flags = torch.tensor([rank == 0, True, False])
    assert hvd.allreduce(flags, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(flags, op=hvd.Min).tolist() == [size == 1, True, False]


@rule("reductions", "Adasum", ours=True)
def _():
    across = torch.zeros(size)
    across[rank] = rank + 1.0
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        equal = torch.full((1000,), 3.0, dtype=dtype)
        same(hvd.allreduce(equal, op=hvd.Adasum), equal)  # who agrees goes one step, not several
        each = torch.arange(1, size + 1).to(dtype)
        same(hvd.allreduce(across.to(dtype), op=hvd.Adasum), each)  # who does not disagree adds up
    first = mine(3)
    together = hvd.grouped_allreduce([first, across], op=hvd.Adasum)  # which are weighed one by one
    same(together[0], hvd.allreduce(first, op=hvd.Adasum))
    same(together[1], torch.arange(1.0, size + 1))
    noise = torch.randn(100_003, generator=torch.Generator().manual_seed(rank))
    same_bits(hvd.allreduce(noise, op=hvd.Adasum))
    if size > 1:
        refused(ValueError, hvd.allreduce, torch.ones(3, dtype=torch.int32), op=hvd.Adasum)


@rule("optimizer", "by Adasum combines steps, not gradients", ours=True)
def _():
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), op=hvd.Adasum)
    start = [p.detach().clone() for p in model.parameters()]
    for step in range(4):
        optimizer.zero_grad()
        model(data(step, rank)).sum().backward()
        moves = [-0.1 * p.grad.clone() for p in model.parameters()]
        optimizer.step()
        for parameter, begin, move in zip(model.parameters(), start, moves) if step == 0 else ():
            same(parameter.detach(), begin + hvd.allreduce(move, op=hvd.Adasum), 1e-6)
    same_bits(*model.parameters())
    refused(AssertionError, optimizer.skip_synchronize().__enter__)


@rule("scaling", "before the sum and after it")
def _():
    for dtype in (torch.float16, torch.float32, torch.float64):
        got = hvd.allreduce(mine(9, dtype=dtype), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        same(got, (total(9, dtype=dtype) * 2).to(dtype))
    same(hvd.allreduce(mine(9), prescale_factor=2.0), 2 * total(9) / size, 1e-4)


@rule("scaling", "of integers, in double precision, is cut off toward zero")
def _():
    got = hvd.allreduce(torch.tensor([7, -7]), op=hvd.Sum, prescale_factor=0.5)
    assert got.tolist() == [3 * size, -3 * size]
    assert hvd.allreduce(torch.tensor([7]), op=hvd.Sum, postscale_factor=0.5).tolist() == [7 * size // 2]


@rule("scaling", "by 0 makes zeros")
def _():
    for factor in ("prescale_factor", "postscale_factor"):
        for tensor in (mine(9), mine(5000), mine(9, dtype=torch.float16), torch.tensor([7, -7])):
            for op in (hvd.Sum, hvd.Average):
                same(hvd.allreduce(tensor, op=op, **{factor: 0.0}), torch.zeros_like(tensor))


@rule("in place", "writes the argument and returns it")
def _():
    x = mine(20)
    assert hvd.allreduce_(x, op=hvd.Sum) is x
    same(x, total(20))
    x = mine(20)
    handle = hvd.allreduce_async_(x, op=hvd.Sum)
    assert isinstance(handle, int) and hvd.synchronize(handle) is x
    same(x, total(20))
    x = mine(3)
    assert hvd.broadcast_(x, size - 1) is x
    same(x, value(size - 1, 3))
    x = mine(3)
    assert hvd.synchronize(hvd.broadcast_async_(x, 0)) is x
    same(x, value(0, 3))


@rule("in place", "is no change for autograd: what backward needs may be reduced, and a view of several")
def _():
    weight = torch.ones(20, requires_grad=True)
    for shape in ((20,), (9000, 20)):
        x, y, z = mine(*shape), mine(*shape), mine(*shape)
        loss = (weight * x).sum() + (weight * y).sum() + (weight * z).sum()
        hvd.allreduce_(x, op=hvd.Sum, name="saved")
        hvd.grouped_allreduce_([y], op=hvd.Sum)
        hvd.broadcast_(z, size - 1)
        assert (x._version, y._version, z._version) == (0, 0, 0)
        weight.grad = None
        loss.backward()
        want = (x + y + z).reshape(-1, 20).sum(0)  # as they are now
        same(weight.grad, want, 1e-5 * want.max().item())
    halves = (2 * torch.ones(2, 4, requires_grad=True)).unbind()
    hvd.allreduce_(halves[0], op=hvd.Sum)
    hvd.broadcast_(halves[1], 0)
    same(halves[0].detach(), torch.full((4,), 2.0 * size))
    leaf = mine(3).requires_grad_()
    assert hvd.broadcast_(leaf, 0) is leaf and hvd.allreduce_(leaf, op=hvd.Sum) is leaf
    assert leaf.is_leaf and leaf.requires_grad
    same(leaf.detach(), value(0, 3) * size)


@rule("in place", "only there: other functions leave the argument as it is")
def _():
    x = mine(20)
    hvd.allreduce(x, op=hvd.Sum)
    hvd.broadcast(x, size - 1)
    hvd.synchronize(hvd.allreduce_async(x))
    same(x, mine(20))


@rule("asynchronous", "poll is False after submission, and synchronize forgets the handle")
def _():
    handle = hvd.allreduce_async(mine(1000), op=hvd.Sum, name="polled")
    assert not hvd.poll(handle) or STOCK
    while not hvd.poll(handle):
        pass
    same(hvd.synchronize(handle), total(1000))
    assert hvd.synchronize(handle) is None
    refused(ValueError, hvd.poll, 10**6)


@rule("names", "bring operations together in whatever order ranks submit them")
def _():
    handles = {}
    for i in range(30) if rank % 2 else reversed(range(30)):
        x, name = mine(1 + 997 * i), f"n{i}"
        start = (
            lambda x, name: hvd.allreduce_async(x, op=hvd.Sum, name=name),
            lambda x, name: hvd.allgather_async(x, name=name),
            lambda x, name: hvd.broadcast_async(x, size - 1, name=name),
        )[i % 3]
        handles[i] = start(x, name)
    for i in sorted(handles, key=lambda i: i * 7 % 30):
        n = 1 + 997 * i
        want = total(n), torch.cat([value(r, n) for r in range(size)]), value(size - 1, n)
        same(hvd.synchronize(handles[i]), want[i % 3])


@rule("names", "are for one operation at a time", ours=True)  # there, who tries no longer counts as others do
def _():
    if size == 1:
        return
    first = hvd.allreduce_async(torch.ones(1), name="twice") if rank == 0 else None
    if rank == 0:
        refused(ValueError, hvd.allreduce_async, torch.ones(1), name="twice", text="same name")
    hvd.broadcast(torch.ones(1), 0, name="tried")
    if first is None:
        first = hvd.allreduce_async(torch.ones(1), name="twice")
    same(hvd.synchronize(first), torch.ones(1))


@rule("names", "are taken until the rank has waited or seen the end, however fast it was", ours=True)
def _():
    x = mine(size, 2)
    begin = {
        "allreduce": lambda name: hvd.allreduce_async(x, name=name),
        "allreduce_": lambda name: hvd.allreduce_async_(x.clone(), name=name),
        "grouped_allreduce": lambda name: hvd.grouped_allreduce_async([x, x.double()], name=name),
        "allgather": lambda name: hvd.allgather_async(x, name=name),
        "grouped_allgather": lambda name: hvd.grouped_allgather_async([x, x], name=name),
        "broadcast": lambda name: hvd.broadcast_async(x, 0, name=name),
        "alltoall": lambda name: hvd.alltoall_async(x, name=name),
        "reducescatter": lambda name: hvd.reducescatter_async(x, name=name),
    }
    for what, start in begin.items():
        for use in range(4):  # the first time by the daemon, then in a slot, if there are slots
            handle = start(f"taken.{what}")
            if use % 2:
                hvd.barrier()  # which all ranks come to after the first
                time.sleep(0.01)
            refused(ValueError, start, f"taken.{what}", text="same name")
            if use < 2:
                hvd.synchronize(handle)
            while use >= 2 and not hvd.poll(handle):
                pass
            hvd.synchronize(start(f"taken.{what}"))
    same(hvd.allreduce(mine(3), op=hvd.Sum), total(3))


@rule("tensors", "without elements")
def _():
    same(hvd.allreduce(torch.zeros(0)), torch.zeros(0))
    same(hvd.allreduce(torch.zeros(0, 3), op=hvd.Sum), torch.zeros(0, 3))


@rule("tensors", "that are not contiguous", ours=True)
def _():
    same(hvd.allreduce(mine(6, 4).t(), op=hvd.Sum), total(6, 4).t())
    same(hvd.allgather(mine(6, 4)[:, 1]), torch.cat([value(r, 6, 4)[:, 1] for r in range(size)]))
    whole = mine(6, 4)
    column = whole[:, 1]
    assert hvd.allreduce_(column, op=hvd.Sum) is column
    same(whole[:, 1], total(6, 4)[:, 1])
    same(whole[:, 2], mine(6, 4)[:, 2])


@rule("tensors", "that are sparse")
def _():
    sparse = torch.sparse_coo_tensor(torch.tensor([[rank, size]]), torch.ones(2, 2), (size + 1, 2))
    got = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)()
    same(got.to_dense(), torch.tensor([[1.0, 1.0]] * size + [[float(size)] * 2]))
    if not STOCK:
        same(hvd.allreduce(sparse, name="sparse mean").to_dense()[size], torch.ones(2))


@rule("tensors", "that are compressed on the way")
def _():
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        same(hvd.allreduce(mine(9), op=hvd.Sum, compression=compression), total(9))
        for got in hvd.grouped_allreduce([mine(9)] * 2, op=hvd.Sum, compression=compression):
            same(got, total(9))
        packed, ctx = compression.compress(mine(9))
        same(compression.decompress(packed, ctx), mine(9))


@rule("groups", "keep order, types and places")
def _():
    def some():
        return [mine(5), mine(3, 3, dtype=torch.float64), mine(1), mine(0)]

    want = [total(*x.shape, dtype=x.dtype) for x in some()]
    made = hvd.synchronize(hvd.grouped_allreduce_async(some(), op=hvd.Sum, name="group"))
    assert type(made) is tuple
    for got in hvd.grouped_allreduce(some(), op=hvd.Sum), made:
        for a, b in zip(got, want):
            same(a, b)
    for start in (
        lambda xs: hvd.grouped_allreduce_(xs, op=hvd.Sum),
        lambda xs: hvd.synchronize(hvd.grouped_allreduce_async_(xs, op=hvd.Sum)),
    ):
        xs = some()
        changed = start(xs)
        assert type(changed) is tuple
        for got, x, b in zip(changed, xs, want):
            assert got is x
            same(x, b)
    for got in hvd.grouped_allgather([mine(rank + 1), mine(2, 2)]), hvd.synchronize(
        hvd.grouped_allgather_async([mine(rank + 1), mine(2, 2)])
    ):
        assert type(got) is tuple
        same(got[0], torch.cat([value(r, r + 1) for r in range(size)]))
        same(got[1], torch.cat([value(r, 2, 2) for r in range(size)]))


@rule("groups", "run when every member is there on every rank")
def _():
    if size == 1:
        return
    xs = [mine(4), mine(5, dtype=torch.float64)]
    if rank == 0:
        handle = hvd.grouped_allreduce_async(xs, op=hvd.Sum, name="late")
        for _ in range(3):
            assert not hvd.poll(handle)
    hvd.broadcast(torch.ones(1), 0, name="polled")
    if rank > 0:
        handle = hvd.grouped_allreduce_async(xs, op=hvd.Sum, name="late")
    a, b = hvd.synchronize(handle)
    same(a, total(4))
    same(b, total(5, dtype=torch.float64))


@rule("allgather", "joins uneven rows of every type in the order of ranks")
def _():
    for dtype in MOVED:
        got = hvd.allgather(mine(2 * rank, 3, dtype=dtype))  # rank 0 has none
        same(got, torch.cat([value(r, 2 * r, 3, dtype=dtype) for r in range(size)]))
    same(hvd.synchronize(hvd.allgather_async(mine(1))), torch.cat([value(r, 1) for r in range(size)]))
    refused((ValueError, IndexError, RuntimeError), hvd.allgather, torch.tensor(1.0))


@rule("broadcast", "of every type, the root's")
def _():
    for dtype in MOVED:
        for root in range(size):
            same(hvd.broadcast(mine(7, dtype=dtype), root), value(root, 7, dtype=dtype))
    same(hvd.synchronize(hvd.broadcast_async(mine(2), 0)), value(0, 2))


@rule("alltoall", "splits rows unevenly, evenly, and not at all")
def _():
    for dtype in MOVED:
        splits = torch.tensor([(rank + r) % 3 for r in range(size)], dtype=torch.int32)
        x = torch.cat([torch.full((int(n), 2), 10 * rank + r).to(dtype) for r, n in enumerate(splits)])
        want = torch.cat([torch.full(((rank + r) % 3, 2), 10 * r + rank).to(dtype) for r in range(size)])
        got, received = hvd.alltoall(x, splits)
        same(got, want)
        assert received.dtype == torch.int32 and received.tolist() == [(rank + r) % 3 for r in range(size)]
    even = hvd.alltoall(torch.arange(2 * size) + 100 * rank)
    assert even.tolist() == [100 * r + 2 * rank + i for r in range(size) for i in range(2)]
    none = torch.zeros(size, dtype=torch.int32)
    got, received = hvd.synchronize(hvd.alltoall_async(torch.zeros(0, 2), none))
    assert got.shape == (0, 2) and received.tolist() == [0] * size
    got, received = hvd.synchronize(hvd.alltoall_async(torch.arange(size)))  # a pair without splits too
    assert got.tolist() == [rank] * size and received.tolist() == [1] * size


@rule("alltoall", "refuses wrong splits at the call")
def _():
    ones = torch.ones(size, dtype=torch.int32)
    refused(ValueError, hvd.alltoall, torch.ones(size), ones.long(), text="32-bit integer")
    refused(ValueError, hvd.alltoall, torch.ones(size), torch.cat([ones, ones]), text="number of workers")
    refused(ValueError, hvd.alltoall, torch.ones(size), 2 * ones, text="greater than the first dimension")
    if size > 1:
        refused(ValueError, hvd.alltoall, torch.ones(size + 1), text="even multiple")


@rule("reducescatter", "gives the first ranks the rows that are left over")
def _():
    for dtype in REDUCED:
        for rows in (0, size, 2 * size + 1):
            each, more = divmod(rows, size)
            start = rank * each + min(rank, more)
            want = total(rows, 3, dtype=dtype)[start : start + each + (rank < more)]
            same(hvd.reducescatter(mine(rows, 3, dtype=dtype), op=hvd.Sum), want)
    same(hvd.reducescatter(mine(size)), total(size)[rank : rank + 1] / size, 1e-4)
    half = hvd.reducescatter(mine(size), op=hvd.Sum, prescale_factor=0.5, compression=hvd.Compression.fp16)
    same(half, total(size)[rank : rank + 1] / 2)
    same(hvd.synchronize(hvd.reducescatter_async(mine(size), op=hvd.Sum)), total(size)[rank : rank + 1])
    for got in (
        hvd.grouped_reducescatter([mine(size)] * 2, op=hvd.Sum),
        hvd.synchronize(hvd.grouped_reducescatter_async([mine(size)] * 2, op=hvd.Sum)),
    ):
        for part in got:
            same(part, total(size)[rank : rank + 1])


@rule("reducescatter", "refuses scalars and what is neither sum nor average")
def _():
    wrong = (ValueError, RuntimeError)
    refused(wrong, hvd.reducescatter, torch.tensor(1.0))
    refused(wrong, hvd.reducescatter, torch.ones(size), op=hvd.Max)


@rule("types", "bfloat16 and truth values move as others do", ours=True)
def _():
    for dtype in WIDER:
        same(hvd.allgather(mine(4, dtype=dtype)), torch.cat([value(r, 4, dtype=dtype) for r in range(size)]))
        same(hvd.broadcast(mine(4, dtype=dtype), size - 1), value(size - 1, 4, dtype=dtype))
        same(hvd.alltoall(mine(1, dtype=dtype).repeat(size)),
             torch.cat([value(r, 1, dtype=dtype) for r in range(size)]))  # fmt: skip


@rule("types", "without arithmetic are moved, whatever their bits, as far as this torch has them", ours=True)
def _():
    for name in "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu complex32".split():
        dtype, bits = getattr(torch, name, None), torch.int32 if name == "complex32" else torch.uint8
        if dtype is None:
            continue
        want = [value(r, 3, 2, dtype=bits).view(dtype) for r in range(size)]
        moved = want[rank].clone()
        every = hvd.allgather(moved)
        assert every.dtype is dtype
        same(every.view(bits), torch.cat([w.view(bits) for w in want]))
        same(hvd.broadcast(moved, size - 1).view(bits), want[-1].view(bits))
        refused(ValueError, hvd.allreduce, moved)
        hvd.broadcast_parameters({"moved": moved, "other": torch.ones(2)}, root_rank=0)
        same(moved.view(bits), want[0].view(bits))


@rule("autograd", "of allreduce is allreduce")
def _():
    same(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), 4), torch.full((4,), float(size)))
    same(gradient(hvd.allreduce, 4), torch.ones(4), 1e-6)
    scaled = gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), 4)
    same(scaled, torch.full((4,), 1.5 * size), 1e-5)
    grouped = gradient(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum), 4)
    same(grouped, torch.full((4,), 3.0 * size), 1e-5)


@rule("autograd", "of allgather is the average of the own rows")
def _():
    got = gradient(lambda x: hvd.allgather(x) * (rank + 1), rank + 1)
    same(got, torch.full((rank + 1,), (size + 1) / 2), 1e-5)
    same(gradient(lambda x: hvd.grouped_allgather([x, x]), 2), torch.full((2,), 2.0), 1e-5)


@rule("autograd", "of broadcast is the average, for the root alone")
def _():
    root = size - 1
    want = torch.full((4,), (size + 1) / 2 if rank == root else 0.0)
    same(gradient(lambda x: hvd.broadcast(x, root) * (rank + 1), 4), want, 1e-5)


@rule("autograd", "of alltoall goes back with the splits received")
def _():
    splits = torch.tensor([r + 1 for r in range(size)], dtype=torch.int32)
    got = gradient(lambda x: hvd.alltoall(x, splits)[0] * (rank + 1), int(splits.sum()))
    same(got, torch.cat([torch.full((r + 1,), r + 1.0) for r in range(size)]))


@rule("autograd", "of reducescatter is allgather, times the ranks for a sum")
def _():
    same(gradient(hvd.reducescatter, 2 * size + 1), torch.ones(2 * size + 1), 1e-5)
    scaled = gradient(
        lambda x: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25), 2 * size + 1
    )
    same(scaled, torch.full((2 * size + 1,), size / 2.0), 1e-5)
    grouped = gradient(lambda x: hvd.grouped_reducescatter([x, x], op=hvd.Sum), size)
    same(grouped, torch.full((size,), 2.0 * size), 1e-5)


@rule("errors", "ranks that disagree are told at synchronize, all of them, and go on")
def _():
    if size == 1:
        return
    odd = rank == size - 1
    kind = torch.float64 if odd else torch.float32
    failed(lambda: hvd.allreduce_async(torch.ones(2 + odd), name="shape"))
    failed(lambda: hvd.allreduce_async(torch.ones(2, 2) if odd else torch.ones(4), name="dimensions"))
    failed(lambda: hvd.allreduce_async(torch.ones(2, dtype=kind), name="type"))
    failed(lambda: hvd.allreduce_async(torch.ones(2), op=hvd.Sum, prescale_factor=1.0 + odd, name="scale"))
    failed(lambda: hvd.broadcast_async(torch.ones(2), int(odd), name="root"))
    failed(lambda: hvd.broadcast_async(torch.ones(2 + odd), 0, name="broadcast shape"))
    failed(lambda: hvd.allgather_async(torch.ones(2, 2 + odd), name="row"))
    failed(lambda: hvd.allgather_async(torch.ones(2, dtype=kind), name="gathered type"))
    failed(lambda: hvd.alltoall_async(torch.ones(size, 1 + odd), name="alltoall row"))
    failed(lambda: hvd.reducescatter_async(torch.ones(size, 1 + odd), name="scattered row"))
    if not STOCK:  # there, one of these waits for ever
        failed(lambda: hvd.allreduce_async(torch.ones(2), op=hvd.Max if odd else hvd.Sum, name="reduction"))
    same(hvd.allreduce(mine(2), op=hvd.Sum), total(2))


@rule("errors", "arguments that are wrong anywhere are refused at the call")
def _():
    refused(ValueError, hvd.broadcast, torch.ones(1), size)
    refused(ValueError, hvd.broadcast_parameters, 5, 0)
    lbfgs = torch.optim.LBFGS([torch.zeros(1, requires_grad=True)])
    if STOCK:  # gorun shares its state as that of others
        refused(ValueError, hvd.broadcast_optimizer_state, lbfgs, 0)
    else:
        hvd.broadcast_optimizer_state(lbfgs, 0)


@rule("process sets", "exist from add to remove, and number their members")
def _():
    assert hvd.global_process_set.size() == size and hvd.global_process_set.included()
    assert hvd.global_process_set.process_set_id == 0 and hvd.global_process_set.rank() == rank
    unused = hvd.ProcessSet([0])
    assert unused.process_set_id is None
    if size == 1:
        return
    first = hvd.add_process_set(hvd.ProcessSet([0]))
    rest = hvd.add_process_set(range(1, size))
    refused(ValueError, hvd.add_process_set, [0], text="duplicate process set")
    known = module.mpi_ops._basics._get_process_set_ids_and_ranks()
    everybody, others = list(range(size)), list(range(1, size))
    assert known == {0: everybody, first.process_set_id: [0], rest.process_set_id: others}, known
    assert (first.size(), rest.size()) == (1, size - 1) and first.included() == (rank == 0)
    here = first if rank == 0 else rest
    there = rest if rank == 0 else first
    assert here.rank() == max(rank - 1, 0)
    assert list(here.ranks) == ([0] if rank == 0 else list(range(1, size)))
    refused((ValueError, hvd.HorovodInternalError), hvd.allreduce, torch.ones(1), process_set=there)
    want = value(0, 3) if rank == 0 else total(3) - value(0, 3)
    same(hvd.allreduce(mine(3), op=hvd.Sum, name="same name", process_set=here), want)
    same(hvd.allreduce(mine(3), name="mean", process_set=here), want / here.size(), 1e-5)
    members = here.ranks
    gathered = hvd.grouped_allgather([mine(1)], process_set=here)
    for got in hvd.allgather(mine(1), process_set=here), gathered[0]:
        same(got, torch.cat([value(r, 1) for r in members]))
    root = members[-1]  # counted among all ranks, not among the members
    same(hvd.broadcast(mine(2), root, process_set=here), value(root, 2))
    got = hvd.alltoall(mine(1).repeat(len(members)), process_set=here)
    same(got, torch.cat([value(r, 1) for r in members]))
    part = hvd.reducescatter(mine(len(members), 1), op=hvd.Sum, process_set=here)
    assert part.shape == (1, 1)
    hvd.barrier(process_set=here)
    assert hvd.broadcast_object(rank, root, process_set=here) == root
    assert hvd.remove_process_set(first) and hvd.remove_process_set(rest)
    assert first.process_set_id is None and not hvd.remove_process_set(first)
    assert not hvd.remove_process_set(hvd.global_process_set)
    if not STOCK:  # a TypeError there
        refused(ValueError, hvd.allreduce, torch.ones(1), process_set=here)


@rule("objects", "of any kind travel")
def _():
    got = hvd.broadcast_object({"rank": rank, "x": [1.5]}, root_rank=size - 1)
    assert got == {"rank": size - 1, "x": [1.5]}
    assert hvd.allgather_object(("rank", "x" * rank)) == [("rank", "x" * r) for r in range(size)]


@rule("parameters", "become those of the root")
def _():
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1), momentum=0.9)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=size - 1)
    hvd.broadcast_parameters(list(model.named_parameters()), root_rank=size - 1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=size - 1)
    assert abs(optimizer.param_groups[0]["lr"] - 0.1 * size) < 1e-9
    momenta = [state["momentum_buffer"] for state in optimizer.state_dict()["state"].values()]
    same_bits(*model.parameters(), *momenta)


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def data(step, r):
    return torch.randn(3, 5, generator=torch.Generator().manual_seed(100 * step + r))


def trained(passes=1, **options):
    """Check that N ranks train what one does that sees all their batches."""
    alone, model = network(), network()
    plain = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5), model.named_parameters(),
        backward_passes_per_step=passes, **options,
    )  # fmt: skip
    assert isinstance(optimizer, torch.optim.SGD)
    for step in range(3):
        for part in range(passes):
            at = step * passes + part
            (sum(alone(data(at, r)).square().mean() for r in range(size)) / size).backward()
            model(data(at, rank)).square().mean().backward()
        for one in plain, optimizer:
            one.step()
            one.zero_grad()
    for a, b in zip(model.parameters(), alone.parameters()):
        same(a.detach(), b.detach(), 1e-2 if "compression" in options else 1e-4)


@rule("parameters", "of an optimizer without a state have zero gradients after its broadcast")
def _():
    model = network()
    hvd.broadcast_optimizer_state(torch.optim.Adam(model.parameters()), root_rank=0)
    for parameter in model.parameters():
        same(parameter.grad, torch.zeros_like(parameter))


@rule("optimizer", "trains as one process does that sees all batches")
def _():
    trained()
    trained(compression=hvd.Compression.fp16)
    trained(op=hvd.Average, sparse_as_dense=True)


@rule("optimizer", "adds up several passes before a step")
def _():
    trained(passes=2)


@rule("optimizer", "divides before and after the sum")
def _():
    trained(gradient_predivide_factor=2.0)
    parameters = network().parameters()
    refused(ValueError, hvd.DistributedOptimizer, torch.optim.SGD(parameters, lr=1), op=hvd.Sum,
            gradient_predivide_factor=2.0)  # fmt: skip


@rule("optimizer", "reduces groups together")
def _():
    trained(groups=2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        trained(num_groups=1)
    assert any("groups" in str(warning.message) for warning in seen)


@rule("optimizer", "refuses names that are double or missing")
def _():
    model = network()
    plain = sgd(model.parameters())
    double = [("x", p) for p in model.parameters()]
    refused(ValueError, hvd.DistributedOptimizer, plain, named_parameters=double)
    refused(ValueError, hvd.DistributedOptimizer, plain, named_parameters=list(model.named_parameters())[:1])


@rule("optimizer", "shows what it was made with")
def _():
    optimizer = hvd.DistributedOptimizer(sgd(network().parameters()), op=hvd.Sum, sparse_as_dense=True)
    assert (optimizer.op, optimizer.sparse_as_dense) == (hvd.Sum, True)
    assert optimizer.gradient_predivide_factor == 1
    assert optimizer.process_set is hvd.global_process_set and optimizer.backward_passes_per_step == 1
    optimizer.backward_passes_per_step = 2
    assert optimizer.backward_passes_per_step == 2
    model = network()
    for named, names in (
        (None, [f"allreduce.noname.0.{i}" for i in range(4)]),
        (model.named_parameters(), [name for name, _ in model.named_parameters()]),
    ):
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), named)
        assert [optimizer._parameter_names[p] for p in model.parameters()] == names


@rule("optimizer", "lets gradients be clipped between synchronize and step")
def _():
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    (1000 * model(data(0, rank)).sum()).backward()
    optimizer.synchronize()
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 1
    with optimizer.skip_synchronize():
        optimizer.step()
    same_bits(*model.parameters())
    optimizer.zero_grad()
    model(data(1, rank)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer.step()
    assert size == 1 or any("skip_synchronize() context" in str(warning.message) for warning in seen)


@rule("optimizer", "asserts one step for the passes agreed on")
def _():
    if size == 1:
        return
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    model(data(0, rank)).sum().backward()
    refused(AssertionError, optimizer.zero_grad, text="after loss.backward()")
    refused(AssertionError, model(data(0, rank)).sum().backward, text="backward_passes_per_step")
    optimizer.step()


@rule("optimizer", "loads a state on one rank alone, and broadcasts one, between any two steps")
def _():
    model = network()
    plain = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    for step in range(8):
        if step % 3 == 1 and rank == size - 1:
            optimizer.load_state_dict(optimizer.state_dict())
        if step % 3 == 2:
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        model(data(step, rank)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    same_bits(*model.parameters())


@rule("optimizer", "reduces the gradients also after a script has replaced their data, or the model's type")
def _():
    alone, model = network(), network()
    plain = torch.optim.SGD(alone.parameters(), lr=0.05)
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    for step, dtype in enumerate([torch.float32] * 4 + [torch.float64] * 2 + [torch.float32] * 2):
        alone.to(dtype)
        model.to(dtype)
        (sum(alone(data(step, r).to(dtype)).square().mean() for r in range(size)) / size).backward()
        model(data(step, rank).to(dtype)).square().mean().backward()
        optimizer.synchronize()
        for net in alone, model:
            for p in net.parameters():
                if step % 2 and p.grad.dim() > 1:
                    p.grad.data = p.grad.data * 0.5
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.step()
        for net in alone, model:
            for p in net.parameters():
                p.grad.zero_()
        optimizer.zero_grad()
        for a, b in zip(model.parameters(), alone.parameters()):
            same(a.detach(), b.detach(), 1e-5)
            assert a.grad is None or a.grad.dtype == dtype


@rule("optimizer", "leaves a sparse gradient sparse, also where it travels as a dense one")
def _():
    as_dense = {"sparse_as_dense": True}
    for make in (torch.optim.SGD, torch.optim.SparseAdam):
        weights = []
        for options in ({}, as_dense, {**as_dense, "compression": hvd.Compression.fp16}):
            torch.manual_seed(5)
            table = nn.Embedding(2 * size + 2, 3, sparse=True)
            plain = make(list(table.parameters()), lr=0.1)
            optimizer = hvd.DistributedOptimizer(plain, table.named_parameters(), **options)
            for step in range(4):
                table(torch.tensor([rank, step + rank])).square().sum().backward()
                optimizer.synchronize()
                assert table.weight.grad.is_sparse, (make, options, step)
                rows = {r for other in range(size) for r in (other, step + other)}
                assert set(table.weight.grad.to_dense().abs().sum(1).nonzero()[:, 0].tolist()) == rows
                with optimizer.skip_synchronize():
                    optimizer.step()
                optimizer.zero_grad()
            weights.append(table.weight.detach())
        same(weights[1], weights[0], 1e-5)
        same(weights[2], weights[0], 1e-2)


@rule("optimizer", "zero_grad takes set_to_none", ours=True)
def _():
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for setting in (False, True):
        model(data(0, rank)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=setting)
        assert all(p.grad is None if setting else not p.grad.any() for p in model.parameters())


@rule("batch norm", "is that of all ranks' batches, without a GPU", ours=True)
def _():
    torch.manual_seed(0)
    everything = torch.randn(4 * size, 3, 2)
    plain, synced = nn.BatchNorm1d(3), hvd.SyncBatchNorm(3)
    whole = everything.clone().requires_grad_()
    part = everything[4 * rank : 4 * rank + 4].clone().requires_grad_()
    plain(whole).square().sum().backward()
    synced(part).square().sum().backward()
    same(part.grad, whole.grad[4 * rank : 4 * rank + 4], 1e-5)
    same(synced.running_var, plain.running_var, 1e-5)


@rule("elastic", "state is committed, restored and synchronised")
def _():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = hvd.elastic.ElasticSampler(list(range(4 * size)), shuffle=False)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, batch=rank)
    kept = [p.detach().clone() for p in model.parameters()]
    state.save()
    model(data(0, rank)).sum().backward()
    optimizer.step()
    state.batch = 77
    state.restore()
    for p, old in zip(model.parameters(), kept):
        same(p.detach(), old)
    assert state.batch == rank
    state.sync()
    assert state.batch == 0  # the root's
    assert sorted(sampler) == list(range(rank, 4 * size, size))
    sampler.record_batch(0, 2)
    assert sampler.state_dict()["processed_num"] == 2 * size


@rule("elastic", "run starts over from the last commit", ours=True)
def _():
    state = hvd.elastic.TorchState(step=0)
    starts = []

    @hvd.elastic.run
    def train(state):
        starts.append(state.step)
        while state.step < 6:
            state.step += 1
            if state.step == 5 and len(starts) == 1:
                raise hvd.HorovodInternalError("all failed")
            if state.step % 2 == 0:
                state.commit()
        return "done"

    assert train(state) == "done" and starts == [0, 4], starts


@rule("basics", "shutdown and init, again and again")
def _():
    for turn in range(3):
        hvd.shutdown()
        assert not hvd.is_initialized()
        refused(ValueError, hvd.rank)
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (rank, size)
        same(hvd.allreduce(mine(3) + turn, op=hvd.Sum), total(3) + turn * size)


@rule("join", "counts a rank without data as zeros, and names the last")
def _():
    for step in range(rank + 1):
        active = sum(r + 1.0 for r in range(step, size))
        same(hvd.allreduce(torch.full((3,), rank + 1.0), op=hvd.Sum, name="sum"), torch.full((3,), active))
        same(hvd.allreduce(torch.full((3,), rank + 1.0), name="mean"), torch.full((3,), active / size), 1e-5)
    assert hvd.join() == size - 1


@rule("join", "is over when all have joined")
def _():
    last = hvd.join()
    assert hvd.allgather(torch.tensor([last]), name="last").tolist() == [last] * size


@rule("basics", "a rank that shuts down ends the others' operations", ours=True)
def _():
    hvd.barrier()
    if rank == size - 1 and size > 1:
        hvd.shutdown()
    elif size > 1:
        refused(hvd.HorovodInternalError, hvd.allreduce, torch.ones(1))


def main():
    covered = []
    for topic, text, ours, check in RULES:
        if ours and STOCK:
            continue
        try:
            check()
        except BaseException as error:
            print(f"rank {rank} of {size}: {topic}: {text}: {error!r}", file=sys.stderr, flush=True)
            raise
        covered.append(f"{topic}: {text}")
    if not STOCK:
        stock = json.loads((Path(__file__).resolve().parent.parent / "stock_names.json").read_text())
        wanted = {name for name in stock["torch"] if callable(getattr(module, name, None))}
        wanted |= {"elastic.run", "elastic.TorchState", "elastic.ElasticSampler", "is_homogeneous"}
        wanted -= {"add_process_set", "remove_process_set"} if size == 1 else set()
        missing = sorted(wanted - Recorder.used - {name.rpartition(".")[2] for name in Recorder.used})
        assert not missing, f"functions that no check uses: {missing}"
    if rank == 0:
        print("\n".join(covered))
        print(f"{len(covered)} rules, {len(Recorder.used)} names, {size} ranks: ok")
    hvd.shutdown()


if __name__ == "__main__":
    main()
