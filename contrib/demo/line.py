"""Fit a line to points with nothing but the standard library, and go on when a host is lost.

    gorun -np 4 --min-np 2 -H host1:2,host2:2 python3 line.py
"""

import random
import time

import gorun
from gorun import basics, elastic, objects

STEPS, PAUSE = 60, 0.1  # a step takes as long as one of a real training might


def gradient(state: elastic.ObjectState, rank: int) -> "tuple[float, float]":
    """Return the gradient of this rank's points in this step: y = 3 x + 2, with some noise."""
    rng = random.Random(state.step * 1000 + rank)
    points = [(x, 3 * x + 2 + rng.gauss(0, 0.1)) for x in (rng.uniform(-1, 1) for _ in range(64))]
    errors = [(state.slope * x + state.height - y, x) for x, y in points]
    return sum(e * x for e, x in errors) / len(errors), sum(e for e, _ in errors) / len(errors)


@elastic.run
def train(state: elastic.ObjectState) -> None:
    """Train from the last commit to the end."""
    rank, size = basics.rank(), basics.size()
    while state.step < STEPS:
        time.sleep(PAUSE)
        slopes, heights = zip(*objects.allgather_object(gradient(state, rank)))
        state.slope -= 0.2 * sum(slopes) / size
        state.height -= 0.2 * sum(heights) / size
        state.step += 1
        gorun.step()
        if state.step % 10 == 0:
            if rank == 0:
                print(f"step {state.step} of {STEPS} on {size} ranks: y = {state.slope:.2f} x + {state.height:.2f}", flush=True)
            state.commit()


basics.init()
state = elastic.ObjectState(objects.broadcast_object, basics.rank, step=0, slope=0.0, height=0.0)
train(state)
if basics.rank() == 0:
    print(f"trained to the end on {basics.size()} ranks: y = {state.slope:.2f} x + {state.height:.2f}", flush=True)
