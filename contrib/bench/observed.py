"""What it costs to see a job: a step of ResNet-50's 161 gradients with all that shows it, and without.

    python3 contrib/bench/observed.py --keep build/observed.json

A round has two jobs of the same ranks: one with GORUN_BLIND, which has no counters and no flight recorder,
and one with both, as all jobs have, and with --web and --metrics. They make some steps in turns, so that what
happens on the machine meets both. The second job has two kinds of turns: its page and its metrics are read
each second, or its launcher, which asks the daemons for what they show, is stopped. So what --web and
--metrics cost is measured in the same processes. What counters and recorder cost is not: two jobs of the same
kind may be 3 % apart, for as long as they live, by where their memory lies, for example. So every round has
new jobs, and gives a pair of medians for each two kinds of turns: of their time, and of the CPU time of
launcher, daemon and ranks.

--keep FILE saves each round. A later run with the same file continues after the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import running
from growth import below, parents
from programs import BINARY, ROOT, python

BLIND, RECORDED, SHOWN = "without", "with counters and recorder", "with --web and --metrics too"
KINDS = (BLIND, RECORDED, SHOWN)
RESAMPLES = 4000
PERIOD = 1.0  # seconds between two readings of what a job shows
WARM_UP = 4  # steps, which pay for memory
SETTLE = 0.2  # seconds in which a launcher makes up for what it has missed
PATIENCE = 120  # seconds until a rank has started, or made its steps

Turns = list[tuple[float, float]]  # the time and the CPU time of each turn of a job, in seconds
Round = dict[str, Turns]  # by kind of turn


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


@dataclass
class Page:
    """Something that a launcher serves."""

    at: str  # HOST:PORT
    path: str
    token: str = ""

    def read(self) -> int:
        """Read all of it, and return its length."""
        connection = http.client.HTTPConnection(self.at, timeout=10)
        with contextlib.closing(connection):
            headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            connection.request("GET", self.path, headers=headers)
            answer = connection.getresponse()
            length = len(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{self.at}{self.path}: status {answer.status}")
        return length


def pages(said: str) -> list[Page]:
    """Return what a launcher with --web and --metrics serves, by the addresses that it says."""
    metrics = re.search(r"metrics are at http://([^/\s]+)(/\S*)", said)
    page = re.search(r"page of the job is at http://([^/\s]+)/#(\S+)", said)
    if not metrics or not page:
        raise RuntimeError(f"no addresses in: {said}")
    at, token = page.groups()
    polled = [Page(at, path, token) for path in ("/api/state", "/api/output?after=-1")]
    return [Page(*metrics.groups()), *polled]


@contextlib.contextmanager
def reading(shown: list[Page], period: float = PERIOD) -> Iterator[None]:
    """Read pages at once and each period, until the block ends. Not being able to is an error then."""
    done = threading.Event()
    failures: list[Exception] = []

    def read() -> None:
        try:
            while not done.is_set():
                for page in shown:
                    page.read()
                done.wait(period)
        except Exception as e:
            failures.append(e)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failures:
        raise failures[0]


class Job:
    """A job whose rank 0 reads a number of steps, makes them, and writes how long they took, again and again.

    Its launcher is stopped but in turns that are shown; rank 0 speaks over a socket of its own, therefore.
    """

    def __init__(self, blind: bool, ranks: int) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.said = Path(self.directory.name, "stderr")
        path = str(Path(self.directory.name, "rank"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.listener.settimeout(PATIENCE)
        flags = [] if blind else ["--web", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        command = [str(BINARY), "-np", str(ranks), *flags, python(), __file__, "--rank", path]
        env = {**os.environ, "GORUN_BLIND": "1" if blind else ""}
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                command, env=env, cwd=ROOT, text=True, stderr=said, start_new_session=True
            )
        self.blind = blind

    def warm_up(self) -> None:
        self.rank = self.listener.accept()[0]
        self.rank.settimeout(PATIENCE)
        self.lines = self.rank.makefile("rw")
        self.steps(WARM_UP)
        self.pages = [] if self.blind else pages(self.said.read_text())
        os.killpg(self.process.pid, signal.SIGSTOP)

    def turn(self, steps: int, shown: bool) -> tuple[float, float]:
        """Make steps, and return their time and CPU time in seconds."""
        if shown:
            os.killpg(self.process.pid, signal.SIGCONT)
        time.sleep(SETTLE)
        before = cpu_time(self.process.pid)
        with reading(self.pages if shown else []):
            took = self.steps(steps)
        spent = cpu_time(self.process.pid) - before
        os.killpg(self.process.pid, signal.SIGSTOP)
        return took, spent

    def steps(self, steps: int) -> float:
        """Have the ranks make steps, and return how long they took."""
        self.lines.write(f"{steps}\n")
        self.lines.flush()
        took = self.lines.readline()
        if not took:
            raise RuntimeError(f"a job has ended:\n{self.said.read_text()}")
        return float(took)

    def end(self) -> None:
        """End the job."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGCONT)
        running.end(self.process)
        self.listener.close()
        self.directory.cleanup()


def rank_main(path: str) -> None:
    """A rank: makes as many steps as each line says that rank 0 reads from a socket."""
    import torch

    import horovod_torch
    from horovod_torch import hvd
    from rank import Model, resnet50

    torch.set_num_threads(1)
    ranks = horovod_torch.Horovod()
    step = horovod_torch.backward(Model(ranks.rank, resnet50()))
    connection = socket.socket(socket.AF_UNIX)
    if ranks.rank == 0:
        connection.connect(path)
    lines = connection.makefile("rw")
    while True:
        steps = torch.tensor([int(lines.readline() or 0) if ranks.rank == 0 else 0])
        hvd.broadcast_(steps, root_rank=0, name="steps")
        if not steps:
            return
        began = time.perf_counter()
        for _ in range(int(steps)):
            step()
        if ranks.rank == 0:
            lines.write(f"{time.perf_counter() - began}\n")
            lines.flush()


def make_round(n: int, args: argparse.Namespace, start: Callable[[bool, int], Job] = Job) -> Round:
    """Return the turns of each kind, by new jobs. Which comes first differs by round and by turn."""
    first = n % len(KINDS)
    order = [*KINDS[first:], *KINDS[:first]]
    jobs: list[Job] = []
    try:
        for kind in order:
            if kind != RECORDED:  # which turns of the other job are
                jobs.append(start(args.same or kind == BLIND, args.ranks))
        blind, seen = jobs if order.index(BLIND) < order.index(SHOWN) else reversed(jobs)
        for job in jobs:
            job.warm_up()
        turns: Round = {kind: [] for kind in KINDS}
        for turn in range(args.turns):
            for kind in reversed(order) if turn % 2 else order:
                job = blind if kind == BLIND else seen
                turns[kind].append(job.turn(args.steps, kind == SHOWN))
    finally:
        for job in jobs:
            job.end()
    return turns


class Kept:
    """Rounds, and the file that has them: none if its path is empty."""

    def __init__(self, path: str, settings: dict[str, int]) -> None:
        self.path, self.settings = path, settings
        self.rounds: list[Round] = []
        if path and Path(path).exists():
            found = json.loads(Path(path).read_text())
            if found["settings"] != settings:
                sys.exit(f"observed: error: {path} was measured with {found['settings']}, not {settings}")
            self.rounds = found["rounds"]

    def add(self, one: Round) -> None:
        self.rounds.append(one)
        if self.path:
            whole = Path(f"{self.path}.new")
            whole.write_text(json.dumps({"settings": self.settings, "rounds": self.rounds}))
            whole.replace(self.path)


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median of ratios, less one, in per cent, with its 95 % interval by resampling."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]
    return tuple(100 * (x - 1) for x in (statistics.median(ratios), low, high))  # type: ignore[return-value]


def report(rounds: list[Round], steps: int) -> list[str]:
    """The medians of a step, and what steps of each kind take more than those of another."""
    lines = []
    for at, what in enumerate(("time", "CPU time")):
        medians = {
            kind: [statistics.median(turn[at] for turn in one[kind]) / steps * 1e3 for one in rounds]
            for kind in KINDS
        }
        for kind in KINDS:
            lines.append(f"{what} of a step {kind}: {statistics.median(medians[kind]):.2f} ms")
        for kind, than in (RECORDED, BLIND), (SHOWN, RECORDED), (SHOWN, BLIND):
            middle, low, high = interval([a / b for a, b in zip(medians[kind], medians[than])])
            lines.append(
                f"{what} {kind}, against {than}: {middle:+.2f} % "
                f"(95 % interval {low:+.2f} to {high:+.2f} %, {len(rounds)} pairs)"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=26, help="of a turn: a second or longer, for a reading")
    parser.add_argument("--turns", type=int, default=3, help="of each kind in a round")
    parser.add_argument("--pairs", type=int, default=20, help="rounds, with those that --keep has")
    parser.add_argument("--keep", default="", metavar="FILE", help="save rounds there, and go on with its")
    parser.add_argument("--same", action="store_true", help="no job counts or shows: what chance does")
    parser.add_argument("--rank", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank_main(args.rank)
        return
    running.end_on_signals()
    kept = Kept(args.keep, {name: getattr(args, name) for name in ("ranks", "steps", "turns", "same")})
    while len(kept.rounds) < args.pairs:
        kept.add(make_round(len(kept.rounds), args))
    print(*report(kept.rounds, args.steps), sep="\n")


if __name__ == "__main__":
    main()
