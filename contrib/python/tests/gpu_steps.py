"""A program of test_gpu_jobs: elastic steps by NCCL, in which ranks die: gpu_steps.py SIZE FIRST.

SIZE is the size of the first world, and FIRST the first rank of those that die there. They die in the middle
of an operation that NCCL does not end, and of which it reports no error: the stand-in's fault "hang". Those
that are left remove the fault, as a lost peer is gone in the next world.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

import gpu_standins

from gorun import basics, constants, elastic
from gorun.gpu import route

STEPS, DEATH, COUNT = 12, 5, 1000
HANG = os.path.join(os.environ["GPU_STANDIN"], "hang")
SIZE, FIRST = map(int, sys.argv[1:])
DIED = os.path.join(os.environ["GPU_STANDIN"], "died")


def ones(group):
    """Return the address of memory of the GPU, filled with ones, and its elements."""
    address = group.device.alloc(4 * COUNT)
    elements = (ctypes.c_float * COUNT).from_address(address)
    elements[:] = [1.0] * COUNT
    return address, elements


@elastic.run
def train(state):
    if os.path.exists(DIED):
        with open(DIED) as file:
            print(f"next world after {time.time() - float(file.read()):.2f} s", flush=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(HANG)
    group = route.route(basics.world(), basics.local_rank()).settle()
    if group is None:  # a world between the two, with one rank less
        raise elastic.HorovodInternalError("hosts have different numbers of ranks")
    while state.step < STEPS:
        address, elements = ones(group)
        dies = state.step == DEATH and basics.size() == SIZE and basics.rank() >= FIRST
        if dies:
            with open(HANG, "w"):
                pass
        work = group.allreduce(
            f"allreduce.{state.step}", address, address, COUNT, "float32", constants.SUM, 0
        )
        if dies:
            while not getattr(work, "first", work).here:
                time.sleep(0.001)
            with open(DIED, "w") as file:
                file.write(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        assert work.wait(), "left to the host"
        assert set(elements) == {float(basics.size())}, set(elements)
        state.sizes = [*state.sizes, basics.size()]
        state.step += 1
        state.commit()
        group.device.free(address)
    print(f"done: rank {basics.rank()} steps {state.step} sizes {state.sizes}", flush=True)


gpu_standins.use()
basics.init()
train(elastic.ObjectState(step=0, sizes=[]))
sys.exit(0)
