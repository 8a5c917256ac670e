"""Run by every rank of a real job: many waits that a signal ends leave no handle, name or memory behind.

GORUN_TEST_ALARMS is how many.
"""

import os
import random
import resource
import signal

import torch

import gorun.torch as hvd
from gorun import basics
from gorun.library import HANDLE
from gorun.torch.memory import tensor_over

hvd.init()
rank, size = hvd.rank(), hvd.size()
world = basics.world()
torch.set_num_threads(1)
TURNS = int(os.environ.get("GORUN_TEST_ALARMS", 300))
OPERATIONS = 64  # that the library has room for until more are in flight at once
small, large = torch.zeros(3), torch.zeros(1 << 16)
shared = tensor_over(world.alloc(4 << 16), torch.float32, 1 << 16)  # in memory of the library, for wide slots


class Alarm(BaseException):
    pass


def ring(*_):
    raise Alarm


def blocking(tensor, name):
    """Reduce a tensor in a slot, on the belt, or by the daemon."""
    tensor.fill_(rank + 1)
    hvd.allreduce_(tensor, name=name, op=hvd.Sum)
    assert tensor.eq(size * (size + 1) // 2).all(), (name, tensor)


def gathered(name):
    assert hvd.allgather(torch.full((1 + rank,), float(rank)), name=name).numel() == size * (size + 1) // 2


def interrupted(call):
    """Call, and have a signal end that: the other ranks come later."""
    try:
        signal.setitimer(signal.ITIMER_REAL, random.choice((0.00002, 0.0001, 0.001)) * (1 + random.random()))
        call()
    except Alarm:
        return
    raise AssertionError("nothing ended it")


def in_flight():
    """Return what is, of this rank."""
    return [*world._abandoned, *world._cut_short, *world._operations.values()]


def end():
    """Wait for what the daemon has not answered yet."""
    while in_flight():  # for ever if something is lost
        for handle in list(world._operations):
            hvd.synchronize(handle)
        world.sweep_names()


def turn(call, slot=""):
    """Rank 0 is interrupted in a call. The others make it after that.

    What it has brought to a plain slot counts for them. To others it has to come again.
    """
    counts = False
    if rank == 0:
        had = world.session.has_slot(slot)
        interrupted(call)
        counts = bool(in_flight()) or (had and not world.session.has_slot(slot))
    hvd.barrier()
    if not counts:
        call()
    hvd.barrier()
    end()


def waited(name):
    """A wait that was interrupted is taken up again."""
    small.fill_(rank + 1)
    handle = None if rank else hvd.allreduce_async_(small, name=name, op=hvd.Sum)
    if rank == 0:
        interrupted(lambda: hvd.synchronize(handle))
    hvd.barrier()
    if rank:
        handle = hvd.allreduce_async_(small, name=name, op=hvd.Sum)
    hvd.synchronize(handle)
    assert small.eq(size * (size + 1) // 2).all(), (name, small)
    end()


if size > 1:
    signal.signal(signal.SIGALRM, ring)
    random.seed(rank)
    for number in range(TURNS):
        which, name = number % 4, f"{number % 32}"
        if which == 0:
            turn(lambda name=name: blocking(small, name), f"allreduce.{name}")
        elif which == 1:
            waited(name)
        elif which == 2:
            turn(lambda name=name: gathered(name))
        else:
            turn(lambda name=name, tensor=shared if number % 8 == 3 else large: blocking(tensor, name))
        if number == TURNS // 2:
            half = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tensors = [torch.ones(1) for _ in range(OPERATIONS // 2)]
    handles = [hvd.allreduce_async_(tensor, name=f"after.{i}") for i, tensor in enumerate(tensors)]
    places = [world._operations[handle].tickets[0][HANDLE] & 0xFFFFFFFF for handle in handles]
    for handle in handles:
        hvd.synchronize(handle)
    for _ in range(2):
        blocking(small, "a slot")
    assert world.session.has_slot("allreduce.a slot") or hvd.local_size() != size, "there are no slots left"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - half
    print(f"{TURNS} alarms: largest place {max(places)}, {grown} KiB more")
    assert max(places) < OPERATIONS, places
    assert grown < 4096, f"{grown} KiB more"

print(f"rank {rank} of {size}: ok")
