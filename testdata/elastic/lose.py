"""Lose one world after the other, and print what is left of the previous one.

Without the garbage collector, as training loops run that collect at set times: what failed must be gone as soon as
the next world begins, the arena, the frames of the script, and all that they hold. Every rank prints for each world

    world 7: 3 mappings, 12 descriptors, still there: -
"""

import argparse
import gc
import os
import weakref
from typing import Any, Callable

import gorun.elastic
import gorun.numpy as hvd
import numpy as np
from gorun import basics
from gorun.elastic import State
from gorun.objects import broadcast_object

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--worlds", type=int, default=20)
parser.add_argument("--torch", action="store_true", help="lose them amid the steps of an optimizer")
args = parser.parse_args()
gc.disable()
hvd.init()
before = []  # (name, weak reference) of the worlds before
worlds = 0


def watch(**things: Any) -> None:
    """Look in later worlds whether these are gone."""
    before.extend((f"{name} of world {worlds}", weakref.ref(thing)) for name, thing in things.items())


def look() -> None:
    """Print what is left."""
    with open("/proc/self/maps") as file:
        mappings = sum("memfd:" in line for line in file)
    there = ", ".join(name for name, ref in before if ref() is not None)
    descriptors = len(os.listdir("/proc/self/fd"))
    print(f"world {worlds}: {mappings} mappings, {descriptors} descriptors, still there: {there or '-'}", flush=True)


def differ() -> None:
    """Have an operation refused."""
    array = np.ones(1 << 16, dtype=np.float32)
    watch(refused=array)
    hvd.allreduce(array[hvd.rank() :], name="differs")


def lose_arrays(state: State) -> None:
    """Lose the world in an operation, with another under way that is not waited for."""
    array = np.ones(1 << 16, dtype=np.float32)
    hvd.allreduce(array, name="whole")
    try:
        differ()
    except gorun.elastic.HorovodInternalError:
        pass
    look()
    watch(array=array, world=basics.world(), session=basics.world().session)
    state.commit()
    if worlds < args.worlds:
        if hvd.rank() == 1:
            raise gorun.elastic.HorovodInternalError("lost heart")
        hvd.allreduce_async(array, name="under way")
        hvd.allreduce(array, name="lost")


def make_step() -> "tuple[State, Callable[[State], None]]":
    """Return the state of a model, and what loses the world in step() or in the hooks of backward()."""
    import gorun.torch as hvd
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))

    def lose(state: State) -> None:
        for last in False, True:
            optimizer.zero_grad()
            loss = model(torch.ones(8, 64)).sum()
            if last:
                look()
                watch(loss=loss)
                state.commit()
                if worlds == args.worlds:
                    return
                if hvd.rank() == 1:
                    raise hvd.HorovodInternalError("lost heart")
                if worlds % 2:
                    try:
                        hvd.allreduce(torch.ones(9), name="lost")
                    except hvd.HorovodInternalError:
                        pass  # so that backward() finds the world gone
            loss.backward()
            optimizer.step()

    return hvd.elastic.TorchState(model=model, optimizer=optimizer), lose


def train(state: State) -> None:
    """Count the worlds."""
    global worlds
    worlds += 1
    lose(state)


if args.torch:
    state, lose = make_step()
else:
    state, lose = gorun.elastic.ObjectState(broadcast_object, hvd.rank, step=0), lose_arrays
gorun.elastic.run(train)(state)
