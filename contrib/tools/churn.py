"""Disturb elastic jobs on this machine at random, and check that none loses work.

    make churn                       # 3 minutes
    python3 contrib/tools/churn.py --minutes 30 --seed 7

Each job counts with testdata/elastic/steps.py on three daemons of this machine. Ranks and daemons are killed or
stopped for a while, and hosts come and go, several at once; one rank is always spared, as no other has what was
counted. The weights at the end are known beforehand. What went wrong is printed with the seed that repeats it, as
far as the machine repeats its timing.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("localhost", "127.0.0.1", "::1")
PATIENCE = 120.0  # seconds for a job whose work takes ten


class Job:
    """One elastic job, and the faults that disturb it."""

    def __init__(self, seed: int, steps: int, folder: str) -> None:
        self.rng = random.Random(seed)
        self.hosts = os.path.join(folder, "hosts")
        self.lines: list[str] = []
        self.say({host: 1 + self.rng.randrange(2) for host in HOSTS})
        how = self.rng.choice(("replace", "shrink", "wait"))
        command = [
            str(ROOT / "bin/gorun"), "--min-np", "1", "--on-failure", how, "--elastic-timeout", "2",
            "--blacklist-cooldown-range", "0.2", "1", "--host-discovery-script", f"cat {self.hosts}",
            sys.executable, "-B", str(ROOT / "testdata/elastic/steps.py"), "--steps", str(steps), "--commit", "5",
            "--pause", "0.02",
        ]  # fmt: skip
        self.note(f"--on-failure {how}")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def note(self, text: str) -> None:
        """Keep a line for the report."""
        self.lines.append(f"{time.monotonic():.3f} {text}")

    def read(self) -> None:
        """Keep the output of the job."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.note(line.rstrip())

    def say(self, slots: dict[str, int]) -> None:
        """Change the list of hosts."""
        text = "".join(f"{host} slots={n}\n" for host, n in slots.items() if n)
        with open(self.hosts + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.hosts + ".new", self.hosts)
        self.note(f"-- hosts: {text!r}")

    def tree(self, what: str) -> list[int]:
        """Return the job's processes whose command line has a word."""
        return [pid for pid in descendants(self.process.pid) if what in command_line(pid)]

    def disturb(self) -> None:
        """Cause a fault that a job must survive."""
        kind = self.rng.randrange(8)
        ranks = self.tree("steps.py")
        if kind < 3 and len(ranks) > 1:
            spared = min(ranks)
            for pid in self.rng.sample([pid for pid in ranks if pid != spared], self.rng.randint(1, len(ranks) - 1)):
                self.strike(pid, signal.SIGKILL, "rank")
        elif kind == 3 and ranks:
            self.pause(self.rng.choice(ranks), "rank")
        elif kind == 4:
            daemons = self.tree("worker")
            spared = min(ranks, default=0)
            victims = [pid for pid in daemons if spared not in descendants(pid)]
            if victims:
                self.strike(self.rng.choice(victims), signal.SIGKILL, "daemon")
        elif kind == 5:
            daemons = self.tree("worker")
            if daemons:
                self.pause(self.rng.choice(daemons), "daemon")
        else:
            self.say({host: self.rng.randrange(3) for host in self.rng.sample(HOSTS, len(HOSTS))})

    def strike(self, pid: int, number: int, what: str) -> None:
        """Send a signal."""
        try:
            os.kill(pid, number)
            self.note(f"-- {signal.Signals(number).name} for {what} {pid}")
        except ProcessLookupError:
            pass

    def pause(self, pid: int, what: str) -> None:
        """Stop a process for a while."""
        self.strike(pid, signal.SIGSTOP, what)
        time.sleep(self.rng.uniform(0.1, 1.5))
        self.strike(pid, signal.SIGCONT, what)

    def run(self) -> str:
        """Disturb the job until it ends. Return what went wrong, "" for nothing."""
        end = time.monotonic() + PATIENCE
        quiet = time.monotonic() + PATIENCE / 2
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(self.rng.uniform(0.05, 1.0))
            if time.monotonic() < quiet and any("commit" in line for line in list(self.lines)):
                self.disturb()
        hangs = self.process.poll() is None
        if hangs:
            self.process.terminate()
        code = self.process.wait(30)
        self.reader.join(30)
        done = [line for line in self.lines if " done rank " in line or ">:done rank " in line]
        weights = {line.split()[-1] for line in done}
        if hangs:
            return "it hangs"
        if code:
            return f"exit status {code}"
        return "" if len(weights) == 1 else f"weights {sorted(weights)}"

    def worlds(self) -> int:
        """Return the number of worlds."""
        epochs = [int(n) for line in self.lines for n in re.findall(r"epoch (\d+)", line)]
        return max(epochs, default=0)


def descendants(pid: int) -> Iterator[int]:
    """Yield all processes below one."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        threads = os.listdir(f"/proc/{pid}/task")
        for thread in threads:
            if int(thread) != pid:
                children += Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from descendants(child)


def command_line(pid: int) -> str:
    """Return the arguments of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def main() -> None:
    """Run jobs until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400, help="of each job")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    seed, wrong, worlds = args.seed, 0, 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            job = Job(seed, args.steps, folder)
            problem = job.run()
        worlds += job.worlds()
        if problem:
            wrong += 1
            print(*job.lines, sep="\n")
            print(f"seed {seed}: {problem}", flush=True)
        seed += 1
    print(f"{seed - args.seed} jobs in {worlds} worlds, {wrong} went wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
