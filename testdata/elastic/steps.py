"""Count with NumPy, in steps whose sum does not depend on how many ranks there are.

Every step adds a known vector; each rank contributes some of its elements. So the weights at the end are known
beforehand: a step that was lost or done twice, or a rank that has another state, changes their hash. Rank 0
prints every commit, every rank its world at the end:

    commit 20 epoch 2 size 3
    done rank 0 of 3: steps 200 epoch 2 worlds 2 weights 1f0c…
"""

import argparse
import hashlib
import os
import signal
import time

import gorun.elastic
import gorun.numpy as hvd
import numpy as np
from gorun import basics
from gorun.objects import broadcast_object

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--length", type=int, default=1000, help="elements of the vector")
parser.add_argument("--commit", type=int, default=10, help="steps between two commits")
parser.add_argument("--ranks", type=int, default=1, help="the first step waits for so many: hosts may come one by one")
parser.add_argument("--linger", type=float, default=0.0, help="seconds of a commit, half of them before its copy")
parser.add_argument("--pause", type=float, default=0.0, help="seconds of computation in a step")
parser.add_argument("--kill", default="", help="RANK@STEP[,…]: these ranks of the first world kill themselves there")
parser.add_argument("--fail", default="", help="RANK@STEP: this rank of the first world loses heart there")
parser.add_argument("--differ", default="", help="RANK@STEP: this rank has another shape there than the others")
parser.add_argument("--leave", default="", help="RANK@STEP: this rank of the first world exits with 0 there")
parser.add_argument("--hold", default="", help="RANK@FILE: this rank leaves the first world when FILE is there")
parser.add_argument("--until", default="", help="go on after all steps until this FILE is there, as rank 0 sees it")
parser.add_argument("--tell", action="store_true", help="every process says what it keeps, and what it goes on from")
parser.add_argument("--sets", action="store_true", help="reduce in process sets too, added before training")
args = parser.parse_args()


def addition(step: int) -> np.ndarray:
    """Return what a step adds: whole numbers, so that no order of adding changes the sum."""
    return np.random.default_rng(step).integers(-1000, 1000, args.length).astype(np.float64)


def digest(weights: np.ndarray) -> str:
    """Return a short hash."""
    return hashlib.sha256(weights.tobytes()).hexdigest()[:16]


def named(places: str) -> "set[tuple[int, int]]":
    """Read RANK@STEP,RANK@STEP."""
    return {(int(rank), int(step)) for rank, step in (p.split("@") for p in places.split(",") if p)}


def epoch() -> int:
    """Return which world this is."""
    return basics.world().session.epoch


hvd.init(process_sets="dynamic" if args.sets else None)
first = epoch()
sets = [hvd.add_process_set(ranks) for ranks in ([0], [0, 2], [1, 2])] if args.sets else []


class State(gorun.elastic.ObjectState):
    """What says that it has been kept."""

    def commit(self) -> None:
        time.sleep(args.linger / 2)
        self.save()
        if args.tell:
            print(f"process {process} kept step {self.step}", flush=True)
        time.sleep(args.linger / 2)
        self.check_host_updates()


def ended() -> bool:
    return not args.until or bool(broadcast_object(os.path.exists(args.until), 0, name="ended"))


process = int(os.environ.get("GORUN_PROCESS", 0))
state = State(
    broadcast_object, hvd.rank, step=0, weights=np.zeros(args.length, dtype=np.float64)
)
worlds = []


def reset() -> None:
    """Go to the next world."""
    rank, _, file = args.hold.partition("@")
    if args.hold and epoch() == first == 1 and hvd.rank() == int(rank):
        print(f"process {process} takes its time to leave", flush=True)
        while not os.path.exists(file):
            time.sleep(0.05)
    basics.reset()


def train(state: gorun.elastic.ObjectState) -> None:
    """Go on from the last commit."""
    worlds.append(epoch())
    if args.tell:
        print(f"process {process} is rank {hvd.rank()} of {hvd.size()} from step {state.step}", flush=True)
    while state.step == 0 and hvd.size() < args.ranks:
        time.sleep(0.02)
        state.check_host_updates()
    while state.step < args.steps or not ended():
        here = (hvd.rank(), state.step)
        if epoch() == first == 1:
            if here in named(args.kill):
                os.kill(os.getpid(), signal.SIGKILL)
            if here in named(args.leave):
                print(f"process {process} leaves", flush=True)
                raise SystemExit(0)
            if here in named(args.fail) and len(worlds) == 1:
                raise gorun.elastic.HorovodInternalError("lost heart")
        part = addition(state.step)
        part[np.arange(args.length) % hvd.size() != hvd.rank()] = 0
        if here in named(args.differ):
            part = part[1:]
        if args.pause:
            time.sleep(args.pause)
        for process_set in sets:
            if process_set.included():
                members = hvd.allreduce(np.ones(3), op=hvd.Sum, name="members", process_set=process_set)
                wanted = [rank for rank in process_set._wanted if rank < hvd.size()]
                if members.tolist() != [len(wanted)] * 3 or process_set.ranks != wanted:
                    raise SystemExit(f"{process_set} of {hvd.size()} ranks has {members}")
        state.weights = state.weights + hvd.allreduce(part, op=hvd.Sum, name="part")
        state.step += 1
        if state.step % args.commit == 0:
            if hvd.rank() == 0:
                print(f"commit {state.step} epoch {epoch()} size {hvd.size()}", flush=True)
            state.commit()


gorun.elastic.run_fn(train, reset)(state)
place = f"rank {hvd.rank()} of {hvd.size()}"
print(
    f"done {place}: steps {state.step} epoch {epoch()} worlds {len(worlds)} weights {digest(state.weights)}", flush=True
)
expected = sum(addition(step) for step in range(state.step))
if not np.array_equal(state.weights, expected):
    raise SystemExit(f"{place}: the weights should be {digest(expected)}")
