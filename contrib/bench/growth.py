"""gorun with large tensors: the cost of a byte from 1 MiB to 1 GiB, and the memory of its daemons.

What is judged is the time that passes, the least of several rounds: other programs can only add to it. The
processor time of the daemons stands beside it; ranks of one host reduce tensors themselves, and their daemon
lends them hands only where those are large.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import running
from programs import BINARY, ROOT

PAUSE = 0.02  # seconds between two looks at the daemons
UNTIMED = 7  # operations of each size that `gorun bench` does not time: 5 to warm up, 2 to check

# A tensor of this size fits into no cache any more. What is smaller may cost less per byte; if it costs more,
# that is for the wake-ups of an operation, which do not grow.
BEYOND_CACHES = 64 << 20
FLAT = 1.5  # how much more a byte may cost than in the cheapest such tensor
FLAT_BELOW = 2.0  # the same of smaller tensors
ROUNDS = 3
OWN = 128 << 20  # bytes that a daemon may have of its own, however large tensors are


def status(text: str) -> dict[str, int]:
    """The sizes in a /proc/PID/status, in bytes by name."""
    sizes = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            sizes[name] = int(words[0]) << 10
    return sizes


def parents(proc: Path = Path("/proc")) -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for directory in proc.iterdir():
        if directory.name.isdigit():
            try:
                # The name of a process may hold anything, but ends with the last bracket.
                found[int(directory.name)] = int(
                    (directory / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except (OSError, ValueError, IndexError):  # it has ended
                continue
    return found


def below(root: int, parent: dict[int, int]) -> list[int]:
    """All processes that come from one."""
    family, more = {root}, True
    while more:
        young = {pid for pid, above in parent.items() if above in family} - family
        family |= young
        more = bool(young)
    return sorted(family - {root})


def seconds_of(stat: str) -> float:
    """The processor time in a /proc/PID/stat."""
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@dataclass
class Watch:
    """The peak memory of a daemon, without and with the ranks' shared memory, and the CPU time of all."""

    own: int = 0
    resident: int = 0
    seconds: dict[int, float] = field(default_factory=dict)  # by process

    def look(self, root: int) -> None:
        for pid in below(root, parents()):
            process = Path(f"/proc/{pid}")
            try:
                if b"worker" not in (process / "cmdline").read_bytes().split(b"\0"):
                    continue
                sizes = status((process / "status").read_text())
                self.seconds[pid] = seconds_of((process / "stat").read_text())
            except OSError:
                continue
            self.own = max(self.own, sizes.get("RssAnon", 0))
            self.resident = max(self.resident, sizes.get("VmHWM", 0))


@dataclass
class Row:
    """One size: the median of an operation's time, and the cost of a byte for all daemons together."""

    size: int
    p50_us: float
    cpu_ns: float

    @property
    def byte_ns(self) -> float:
        return self.p50_us * 1e3 / self.size


def command(hosts: int, ranks: int, size: int, seconds: float, binary: Path = BINARY) -> list[str]:
    """Hosts are addresses of this machine; each has a daemon of its own."""
    names = ",".join(f"127.0.0.{k + 1}:{ranks}" for k in range(hosts))
    span = ["-b", str(size), "-e", str(size), "--min-time", f"{seconds}s"]
    return [str(binary), "bench", "allreduce", "-H", names, "--json", *span]


def run(
    hosts: int, ranks: int, size: int, seconds: float, watch: Watch, start: float = 0.0, binary: Path = BINARY
) -> Row:
    """Measures one size. start is the daemons' CPU time in a job that does nothing."""
    before = sum(watch.seconds.values()) + start
    with running.started(command(hosts, ranks, size, seconds, binary), ROOT) as job:
        out, err = watched(job, watch)
    if job.returncode:
        raise RuntimeError(f"{' '.join(job.args)}: exit status {job.returncode}\n{out}{err}")
    row = json.loads(out)["rows"][0]
    computed = max(sum(watch.seconds.values()) - before, 0.0)
    return Row(row["size"], row["p50_us"], 1e9 * computed / (row["size"] * (row["iterations"] + UNTIMED)))


def watched(job: subprocess.Popen[str], watch: Watch) -> tuple[str, str]:
    """Waits for a job, samples its daemons meanwhile, and returns its output."""
    while True:
        try:
            return job.communicate(timeout=PAUSE)
        except subprocess.TimeoutExpired:
            watch.look(job.pid)


def mib(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def complaints(rows: list[Row], own: int) -> list[str]:
    """The figures that grow but should not."""
    wrong = []
    least = min((row.byte_ns for row in rows if row.size >= BEYOND_CACHES), default=0.0)
    for row in rows:
        limit = FLAT if row.size >= BEYOND_CACHES else FLAT_BELOW
        if least and row.byte_ns > limit * least:
            wrong.append(
                f"a byte of {mib(row.size)} costs {row.byte_ns / least:.1f} times as much as the cheapest "
                f"one beyond the caches, more than {limit}"
            )
    if own > OWN:
        wrong.append(f"a daemon had {mib(own)} of its own, more than {mib(OWN)}")
    return wrong


def report(hosts: int, ranks: int, end: int, seconds: float) -> tuple[list[str], list[str]]:
    """A section of the table, and complaints."""
    watch, rows, size = Watch(), [], 1 << 20
    run(hosts, ranks, 4, 0.001, watch)
    start = sum(watch.seconds.values())
    while size <= end:
        rounds = [run(hosts, ranks, size, seconds, watch, start) for _ in range(ROUNDS)]
        rows.append(min(rounds, key=lambda row: row.p50_us))
        size *= 4
    where = f"hosts on this machine: {hosts}, ranks on each: {ranks}"
    lines = [f"## Large tensors; {where}", ""]
    lines += ["| size | p50, best round | ns per byte | daemons' CPU, ns per byte |", "|---:|---:|---:|---:|"]
    lines += [
        f"| {mib(row.size)} | {row.p50_us / 1e3:,.2f} ms | {row.byte_ns:.3f} | {row.cpu_ns:.3f} |"
        for row in rows
    ]
    wrong = complaints(rows, watch.own)
    verdict = "; ".join(wrong) if wrong else "no byte costs more as tensors grow"
    return [
        *lines,
        "",
        f"A daemon had at most {mib(watch.own)} of its own, and {mib(watch.resident)} resident with all "
        f"shared memory. Judged by the best of {ROUNDS} rounds: {verdict}.",
        "",
    ], [f"{where}: {what}" for what in wrong]
