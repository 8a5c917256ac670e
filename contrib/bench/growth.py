"""How gorun fares with large tensors: time per byte from 1 MiB to 1 GiB, and the memory of its daemons."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from programs import BINARY

PAUSE = 0.02  # seconds between two looks at the daemons


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


class Watch:
    """The most that a daemon had, of its own and together with the ranks' shared memory."""

    def __init__(self) -> None:
        self.own = self.resident = 0

    def look(self, root: int) -> None:
        for pid in below(root, parents()):
            try:
                if b"worker" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    continue
                sizes = status(Path(f"/proc/{pid}/status").read_text())
            except OSError:
                continue
            self.own = max(self.own, sizes.get("RssAnon", 0))
            self.resident = max(self.resident, sizes.get("VmHWM", 0))


def command(hosts: int, ranks: int, end: int, seconds: float) -> list[str]:
    """Hosts are addresses of this machine; each has a daemon of its own."""
    names = ",".join(f"127.0.0.{k + 1}:{ranks}" for k in range(hosts))
    span = ["-b", str(1 << 20), "-e", str(end), "-f", "4", "--min-time", f"{seconds}s"]
    return [str(BINARY), "bench", "allreduce", "-H", names, "--json", *span]


def run(hosts: int, ranks: int, end: int, seconds: float) -> tuple[list[dict], Watch]:
    watch = Watch()
    with subprocess.Popen(
        command(hosts, ranks, end, seconds), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        while True:
            try:
                out, err = job.communicate(timeout=PAUSE)
                break
            except subprocess.TimeoutExpired:
                watch.look(job.pid)
    if job.returncode:
        raise RuntimeError(f"{' '.join(job.args)}: exit status {job.returncode}\n{out}{err}")
    return json.loads(out)["rows"], watch


def mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def report(hosts: int, ranks: int, end: int, seconds: float) -> list[str]:
    rows, watch = run(hosts, ranks, end, seconds)
    rates = [row["p50_us"] * 1e3 / row["size"] for row in rows]
    where = f"hosts on this machine: {hosts}, ranks on each: {ranks}"
    lines = [f"## Large tensors; {where}", "", "| size | p50 | ns per byte |", "|---:|---:|---:|"]
    lines += [
        f"| {mib(row['size'])} | {row['p50_us'] / 1e3:,.2f} ms | {rate:.3f} |"
        for row, rate in zip(rows, rates)
    ]
    return [
        *lines,
        "",
        f"The slowest byte takes {max(rates) / min(rates):.2f} times as long as the fastest. A daemon had at "
        f"most {mib(watch.own)} of its own, and {mib(watch.resident)} resident with all shared memory.",
        "",
    ]
