"""What counters and the flight recorder cost: a step of ResNet-50's 161 gradients with them and without.

Two jobs of the same ranks run at the same time, one of them with GORUN_BLIND, and one at a time makes some
steps, in turns: what happens on the machine meets both. A pair is the time, and the CPU time of ranks and
daemon, of one turn each.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from growth import below, parents
from programs import BINARY, ROOT

RESAMPLES = 4000


def cpu_time(root: int) -> float:
    """The seconds of CPU time of all threads of the processes that come from one."""
    total = 0
    for pid in [root, *below(root, parents())]:
        for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(stat.read_text().split()[0])
            except OSError:  # it has ended
                continue
    return total / 1e9


class Job:
    """A job whose rank 0 makes steps for each line that it reads, and writes how long they took."""

    def __init__(self, ranks: int, steps: int, blind: bool, launch: list[str]) -> None:
        command = [
            *launch, str(BINARY), "-np", str(ranks), "--no-tag-output", sys.executable, __file__,
            "--rank", str(steps),
        ]  # fmt: skip
        env = {**os.environ, "GORUN_BLIND": "1" if blind else ""}
        self.process = subprocess.Popen(
            command, env=env, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self.turn()  # the first one pays for memory

    def turn(self) -> tuple[float, float]:
        """Make the steps, and return their time and CPU time in seconds."""
        assert self.process.stdin and self.process.stdout
        before = cpu_time(self.process.pid)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("took "):
                return float(line.split()[1]), cpu_time(self.process.pid) - before
        raise RuntimeError("a job has ended")

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.communicate()


def rank_main(steps: int) -> None:
    """A rank: steps whenever rank 0 is told."""
    import horovod.torch as hvd
    import torch

    import horovod_torch
    from rank import Model, resnet50

    torch.set_num_threads(1)
    ranks = horovod_torch.Horovod()
    step = horovod_torch.backward(Model(ranks.rank, resnet50()))
    while True:
        more = torch.zeros(1)
        if ranks.rank == 0 and sys.stdin.readline():
            more += 1
        hvd.broadcast_(more, root_rank=0, name="more")
        if not more:
            return
        began = time.perf_counter()
        for _ in range(steps):
            step()
        if ranks.rank == 0:
            print("took", time.perf_counter() - began, flush=True)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median of ratios, less one, in per cent, with its 95 % interval by resampling."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]
    return tuple(100 * (x - 1) for x in (statistics.median(ratios), low, high))  # type: ignore[return-value]


def measure(ranks: int, steps: int, pairs: int, launch: list[str]) -> None:
    """Print the figures."""
    seen = Job(ranks, steps, blind=False, launch=launch)
    blind = Job(ranks, steps, blind=True, launch=launch)
    times: dict[Job, list[tuple[float, float]]] = {seen: [], blind: []}
    try:
        for n in range(pairs):
            for job in (seen, blind) if n % 2 else (blind, seen):
                times[job].append(job.turn())
    finally:
        seen.end()
        blind.end()
    for at, what in enumerate(("time", "CPU time")):
        each = statistics.median(t[at] for t in times[blind]) / steps * 1000
        middle, low, high = interval([a[at] / b[at] for a, b in zip(times[seen], times[blind])])
        print(
            f"{what}: {each:.1f} ms a step; with counters and recorder {middle:+.2f} % "
            f"(95 % interval {low:+.2f} to {high:+.2f} %, {pairs} pairs of {steps} steps)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--rank", type=int, metavar="STEPS", help=argparse.SUPPRESS)
    parser.add_argument("launch", nargs="*", help="what the launcher runs under, such as: build/lab run")
    args = parser.parse_args()
    if args.rank:
        rank_main(args.rank)
    else:
        measure(args.ranks, args.steps, args.pairs, args.launch)


if __name__ == "__main__":
    main()
