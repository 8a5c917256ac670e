"""What counters and the flight recorder cost: a step of ResNet-50's 161 gradients with them and without.

Two jobs of the same ranks run at the same time, one of them with GORUN_BLIND, and one at a time makes some
steps, in turns: what happens on the machine meets both. But processes differ for as long as they live, by
where their memory lies, for example: two jobs of the same kind may be 3 % apart. So a pair is the median time
of each of two jobs, and the CPU time of their ranks and daemons, and every pair has new jobs.
"""

from __future__ import annotations

import argparse
import os
import random
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
        """End the job. Its ranks leave when rank 0 has nothing more to read."""
        if self.process.poll() is None:
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


def pair(n: int, args: argparse.Namespace, both_blind: bool) -> list[tuple[float, float]]:
    """Return the median time and CPU time of a turn, of a job that counts and of one that does not."""
    jobs: dict[bool, Job] = {}
    try:
        for blind in (False, True) if n % 2 else (True, False):
            jobs[blind] = Job(args.ranks, args.steps, blind or both_blind, args.launch)
        turns: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for turn in range(args.turns):
            for blind in (False, True) if turn % 2 else (True, False):
                turns[blind].append(jobs[blind].turn())
    finally:
        for job in jobs.values():
            job.end()
    return [tuple(map(statistics.median, zip(*turns[blind]))) for blind in (False, True)]  # type: ignore[misc]


def measure(args: argparse.Namespace) -> None:
    """Print the figures."""
    pairs = []
    began = time.monotonic()
    while len(pairs) < args.pairs and time.monotonic() - began < args.limit:
        pairs.append(pair(len(pairs), args, args.same))
    for at, what in enumerate(("time", "CPU time")):
        each = statistics.median(blind[at] for _, blind in pairs) / args.steps * 1000
        middle, low, high = interval([seen[at] / blind[at] for seen, blind in pairs])
        kind = "without both" if args.same else "with counters and recorder"
        print(
            f"{what}: {each:.1f} ms a step; {kind} {middle:+.2f} % (95 % interval {low:+.2f} to "
            f"{high:+.2f} %, {len(pairs)} pairs of {args.turns} turns of {args.steps} steps)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    parser.add_argument("--turns", type=int, default=12, help="of each job of a pair")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--limit", type=float, default=600, help="seconds after which no pair begins")
    parser.add_argument("--same", action="store_true", help="neither job counts: what chance does")
    parser.add_argument("--rank", type=int, metavar="STEPS", help=argparse.SUPPRESS)
    parser.add_argument("launch", nargs="*", help="what the launcher runs under, such as: build/lab run")
    args = parser.parse_args()
    if args.rank:
        rank_main(args.rank)
    else:
        measure(args)


if __name__ == "__main__":
    main()
