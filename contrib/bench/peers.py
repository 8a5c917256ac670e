#!/usr/bin/env python3
"""Measures gorun and its peers side by side: the same operation, sizes and ranks, on the same machine (or,
with --hosts, on those of the user), in one run.

In each round every program runs once, one after the other, so that whatever else the machine does meets
all of them alike. What counts is the median over the rounds. Prints tables with ratios, and writes them to
a file. programs.py has how each program is started; all are measured by the same rules (rank.py).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import binaries
import growth
import programs
import running
from programs import BUILD, GORUN_PRIVATE, GORUN_TORCH, ROOT, Program, Setting, Sizes


class Failed(Exception):
    """A program brought no rows in a round, and why."""


def once(command: list[str], timeout: float) -> dict[int, dict]:
    """Runs a program and returns its rows by size. One that hangs is ended with all its own."""
    try:
        status, out, err = running.run(command, timeout, programs.HERE)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {timeout:g} s") from None
    # horovodrun puts the rank before each line.
    documents = re.findall(r"^(?:\[\d+\]<stdout>:)?({.*)", out, re.MULTILINE)
    if status != 0 or not documents:
        print(out + err, file=sys.stderr)
        raise Failed(f"exit status {status}")
    document = json.loads(documents[-1])
    if "why" in document:  # it has no such operation
        raise Failed(document["why"])
    rows = {row["size"]: row for row in document["rows"]}
    wrong = sum(row["wrong"] for row in rows.values())
    if wrong:
        raise Failed(f"{wrong} elements are wrong")
    return rows


def compare(
    runners: list[Program], setting: Setting, sizes: Sizes, rounds: int, seconds: float, timeout: float
) -> tuple[dict, list[str]]:
    """Median and spread of p50 by program and size, none if it always failed; and what failed."""
    runs: dict[str, list[dict[int, dict]]] = {runner.name: [] for runner in runners}
    failures: list[str] = []
    for number in range(rounds):
        first = number % len(runners)  # each is the first now and then
        for runner in runners[first:] + runners[:first]:
            print(
                f"{setting.title}: round {number + 1} of {rounds}: {runner.name}", file=sys.stderr, flush=True
            )
            try:
                command = [*setting.run, *runner.command(setting, sizes, seconds)]
                runs[runner.name].append(once(command, timeout))
            except Failed as why:
                failures.append(f"{runner.name} failed in round {number + 1} of {rounds}: {why}.")
    return {name: medians(all_runs) for name, all_runs in runs.items()}, failures


def medians(runs: list[dict[int, dict]]) -> dict[int, dict]:
    """p50_us is the median over the rounds, low and high the extremes; cpu_us that of CPU times, if known."""
    out = {}
    for size in runs[0] if runs else ():
        values = [run[size]["p50_us"] for run in runs]
        out[size] = {"p50_us": statistics.median(values), "low": min(values), "high": max(values)}
        if all("cpu_us" in run[size] for run in runs):
            out[size]["cpu_us"] = statistics.median(run[size]["cpu_us"] for run in runs)
    return out


def human(size: int | str) -> str:
    if isinstance(size, str):  # of a row that is not of a size
        return size
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def micros(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def spread(row: dict) -> str:
    return f"{micros(row['p50_us'])} ({micros(row['low'])}–{micros(row['high'])})"


def table(
    setting: Setting, own: str, results: dict, limit: dict[int, float] | None = None, spreads: bool = False
) -> list[str]:
    """own is the program the others are compared with; limit is the least time in µs by size."""
    others = [name for name in results if name != own]
    head = ["size", f"{own} (spread)"]
    if limit:
        head += ["limit", "of the limit"]
    for name in others:
        head += [name, f"{name} / {own}"]
    lines = [f"## {setting.title}", "", "| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    for size, row in results[own].items():
        cells = [human(size), spread(row)]
        if limit:
            least = limit.get(size)
            cells += [micros(least), f"{100 * least / row['p50_us']:.0f} %"] if least else ["", ""]
        for name in others:
            theirs = results[name].get(size)
            if theirs is None:
                cells += ["" if results[name] else "failed", ""]
                continue
            # An own cost is a difference, and may be none on a busy machine.
            ratio = f"{theirs['p50_us'] / row['p50_us']:.2f}" if row["p50_us"] > 0 else ""
            cells += [spread(theirs) if spreads else micros(theirs["p50_us"]), ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def cpu_table(setting: Setting, results: dict) -> list[str]:
    """What the machine's CPUs worked for one operation, all together; nothing if no program counted it."""
    names = [name for name, rows in results.items() if any("cpu_us" in row for row in rows.values())]
    sizes = {size: None for name in names for size in results[name]}
    lines = [f"## {setting.title}: CPU time of all processes", ""]
    lines += ["| " + " | ".join(["size", *names]) + " |", "|" + "---:|" * (len(names) + 1)]
    for size in sizes:
        used = [results[name].get(size, {}).get("cpu_us") for name in names]
        if any(used):
            cells = ["" if value is None else micros(value) for value in used]
            lines.append("| " + " | ".join([human(size), *cells]) + " |")
    return [*lines, ""] if names else []


def machine() -> str:
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} CPUs ({model}), Linux {platform.release()}"


def preamble(found: list[Program], rounds: int, load: float) -> list[str]:
    versions = "; ".join(f"{program.name}: {program.version}" for program in found)
    lines = [
        "# Float32; sums, in place, unless a table names another operation",
        "",
        f"Medians of {rounds} alternating rounds, in µs; a time is the slowest rank's. A ratio above 1 "
        "says that gorun is faster. The limit of one host is limit.c: the ranks themselves reduce tensors "
        "that lie in shared memory. That of hosts without a limit on their links is limit_tcp.c: the ranks "
        "themselves, over bare connections. That of hosts with one is what iperf3 moves, for the bytes that "
        "must leave each host.",
        "",
        f"Machine: {machine()}; load average at the start {load:.2f}. {versions}.",
        "",
    ]
    for name in programs.NAMES:
        if name not in [program.name for program in found]:
            lines += [f"Not measured, because it is not installed: {name}.", ""]
    if load > (os.cpu_count() or 1) / 2:
        lines += ["The machine was busy with something else: do not trust these figures.", ""]
    return lines


@contextmanager
def lab(hosts: int, mbit: int) -> Iterator[tuple[str, ...]]:
    """Makes hosts out of this machine, and yields the prefix of a command that runs among them."""
    binary, name = str(BUILD / "lab"), f"bench-{os.getpid()}"

    def call(*args: str) -> None:
        subprocess.run([binary, "--name", name, *args], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    subprocess.run(["go", "build", "-o", binary, "./contrib/lab/cmd/lab"], cwd=ROOT, check=True)
    try:
        call("up", str(hosts))
        for host in range(1, hosts + 1):
            if mbit:
                call("link", "--mbit", str(mbit), str(host))
        yield (binary, "--name", name, "run")
    finally:
        call("down")


def lab_limit(run: tuple[str, ...], hosts: int, sizes: list[int]) -> dict[int, float]:
    """The least time of an allreduce: 2(N-1)/N of the bytes leave each host, as fast as iperf3 moves them."""
    rate = programs.iperf(run)
    # Below 1 MiB it is not the bytes that take the time.
    return {size: 2 * (hosts - 1) / hosts * size / rate * 1e6 for size in sizes if rate and size >= 1 << 20}


# The programs that are compared by a step of training.
STEPS = [programs.GORUN_TORCH, programs.GORUN_DDP, programs.GLOO, programs.HOROVOD]


def hidden(results: dict) -> list[str]:
    """How much of what communication adds to a step vanishes where backward waits."""
    lines = []
    for name, rows in results.items():
        if not rows:
            continue
        waiting, waiting_alone, step, alone = (rows[size]["p50_us"] for size in programs.OVERLAP_ROWS)
        if step > alone:
            share = 100 * (1 - (waiting - waiting_alone) / (step - alone))
            lines += [f"{name}: {share:.0f} % of {micros(step - alone)} µs of communication vanish.", ""]
    return lines


class Bench:
    """Collects tables."""

    def __init__(self, args: argparse.Namespace, found: list[Program]) -> None:
        self.args, self.found = args, found
        self.lines: list[str] = []
        self.complaints: list[str] = []  # of gorun itself

    def measure(
        self, setting: Setting, sizes: Sizes, names: list[str], limit: dict[int, float] | None = None
    ) -> None:
        """The first of names is compared with the others; missing ones are left out."""
        wanted = [n for name in names for n in (name, f"{name}, old")]
        runners = [program for name in wanted for program in self.found if program.name == name]
        if names[0] not in [runner.name for runner in runners]:
            self.lines += [f"Not measured: {setting.title}: {names[0]} is not there.", ""]
            return
        args = self.args
        results, failures = compare(runners, setting, sizes, args.rounds, args.min_time, args.timeout)
        ideal = results.pop(programs.LIMIT, None)
        if ideal:
            limit = {size: row["p50_us"] for size, row in ideal.items()}
        elif private := [rows for name, rows in results.items() if name in programs.PRIVATE_LIMITS and rows]:
            sizes_of = dict.fromkeys(size for rows in private for size in rows)
            limit = {size: min(rows[size]["p50_us"] for rows in private if size in rows) for size in sizes_of}
        self.lines += table(setting, names[0], results, limit, bool(self.args.busy))
        if sizes is programs.OVERLAP:
            self.lines += hidden(results)
        self.lines += cpu_table(setting, results)
        for failure in failures:
            self.lines += [failure, ""]
            if failure.startswith(f"{names[0]} failed"):
                self.complaints.append(f"{setting.title}: {failure}")

    def one_host(self, ranks: int, sizes: Sizes) -> None:
        peers = [programs.OPEN_MPI, programs.MPICH, programs.GLOO]
        self.measure(
            Setting(f"1 host, {ranks} ranks", ranks), sizes, [programs.GORUN, programs.LIMIT, *peers]
        )
        self.measure(Setting(f"1 host, {ranks} ranks, from C", ranks), sizes, [programs.GORUN_C, *peers])
        python = [programs.GORUN_TORCH, programs.GLOO, programs.HOROVOD]
        self.measure(Setting(f"1 host, {ranks} ranks, from Python", ranks), sizes, python)
        for title, sizes, more in (
            ("ResNet-50's gradients", programs.STEP, []),
            ("1000 sums of 4 B at once, as a group, one by one", programs.MANY, [programs.GORUN_C]),
            ("Gradients of 1000 parameters of 4 B", programs.MANY_GRADIENTS, []),
        ):
            self.measure(Setting(f"{title}, 1 host, {ranks} ranks", ranks), sizes, [*python, *more])

    def beside(self, ranks: int, sizes: Sizes) -> None:
        """Measures gorun from C and from Python, on a quiet machine and on a busy one."""
        names = [GORUN_PRIVATE, GORUN_TORCH]
        names += [program.name for program in self.found if ", beside" in program.name]
        self.measure(Setting(f"1 host, {ranks} ranks, ordinary memory", ranks), sizes, names)
        names[:2] = names[1::-1]  # Python has more rows
        self.measure(Setting(f"1000 sums of 4 B, 1 host, {ranks} ranks", ranks), programs.MANY, names)

    def private(self, ranks: int, sizes: Sizes) -> None:
        """Measures tensors in ordinary memory, from C and from Python, beside two limits of the machine."""
        peers = [programs.OPEN_MPI, programs.MPICH, programs.GLOO, programs.HOROVOD]
        title = f"1 host, {ranks} ranks, ordinary memory"
        names = [GORUN_PRIVATE, GORUN_TORCH, *programs.PRIVATE_LIMITS, *peers]
        rows = self.args.rows
        if rows in ("all", "sizes"):
            self.measure(Setting(title, ranks), sizes, names)
        if rows in ("all", "step"):
            self.steps(f"1 host, {ranks} ranks", Setting("", ranks))
        if rows in ("all", "overlap"):
            self.measure(Setting(f"Overlap, 1 host, {ranks} ranks", ranks), programs.OVERLAP, STEPS)

    def steps(self, title: str, setting: Setting, limit: dict[int, float] | None = None) -> None:
        """Measures a step of ResNet-50's gradients; that of FSDP too, if this torch has it."""
        self.measure(replace(setting, title=f"ResNet-50's gradients, {title}"), programs.STEP, STEPS, limit)
        if any(program.name == programs.GORUN_FSDP for program in self.found):
            sharded = replace(setting, title=f"ResNet-50's gradients, FSDP, {title}")
            self.measure(sharded, programs.STEP, [programs.GORUN_FSDP, programs.GLOO_FSDP])

    def operation(self, name: str, setting: Setting, sizes: Sizes) -> None:
        """Measures any operation, on one host or on the user's hosts."""
        setting.operation, setting.title = name, f"{name}, {setting.title}"
        peers = [programs.OPEN_MPI, programs.MPICH, programs.GLOO, programs.HOROVOD]
        self.measure(setting, sizes, [programs.GORUN, *peers])

    def lab(self, hosts: int, mbit: int, sizes: Sizes) -> None:
        if os.geteuid() != 0:
            self.lines += [f"Not measured, because a lab needs root: {hosts} lab hosts.", ""]
            return
        with lab(hosts, mbit) as run:
            title = f"{hosts} lab hosts on this machine, 1 rank each" + (f", {mbit} Mbit/s" if mbit else "")
            names = ",".join(f"host{k + 1}:1" for k in range(hosts))
            peers = [programs.OPEN_MPI, programs.MPICH, programs.GLOO]
            # iperf3 sends in one direction with all CPUs, so it shows little where CPUs are the limit.
            least = [] if mbit else [programs.GORUN_C, *([programs.LIMIT] if hosts > 1 else [])]
            limit = lab_limit(run, hosts, [*map(int, sizes.list()), programs.STEP_BYTES]) if mbit else None
            setting, rows = Setting(title, hosts, names, run), self.args.rows
            if rows in ("all", "sizes"):
                self.measure(setting, sizes, [programs.GORUN, *least, *peers], limit)
            if rows in ("all", "step"):
                self.steps(title, setting, limit)
                if least:
                    whole = replace(setting, title=f"The bytes of these gradients as one tensor, {title}")
                    size = Sizes(programs.STEP_BYTES, programs.STEP_BYTES, 2)
                    self.measure(whole, size, [programs.GORUN, *least, *peers])
            if rows in ("all", "overlap"):
                self.measure(replace(setting, title=f"Overlap, {title}"), programs.OVERLAP, STEPS)


def settings(args: argparse.Namespace) -> list[Setting]:
    """The placements of ranks that the flags select, apart from labs."""
    if not args.hosts:
        return [Setting(f"1 host, {ranks} ranks", ranks) for ranks in args.ranks]
    slots = [int(host.partition(":")[2] or 1) for host in args.hosts.split(",")]
    title = f"{len(slots)} hosts, {sum(slots)} ranks"
    return [Setting(title, sum(slots), args.hosts, nic=args.nic)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4], help="numbers of ranks on one host")
    parser.add_argument(
        "--hosts",
        default="",
        help="instead of the numbers of ranks: a list such as host1:2,host2:2; this directory must "
        "be the same on all of them",
    )
    parser.add_argument("--nic", default="", help="with --hosts, the interface between them")
    parser.add_argument("--operation", default="allreduce", help="any of `gorun bench`")
    parser.add_argument(
        "--private",
        action="store_true",
        help="only tensors in ordinary memory on one host, beside its limits",
    )
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        help="only gorun from C and from Python, also beside so many busy processes",
    )
    parser.add_argument("--lab", type=int, nargs="*", default=[], help="numbers of lab hosts, a rank each")
    parser.add_argument(
        "--mbit", type=int, nargs="*", default=[0], help="rates of the lab hosts' links, 0 for no limit"
    )
    parser.add_argument(
        "--large",
        action="store_true",
        help="gorun alone with tensors up to 1 GiB: what a byte costs, and memory of its daemons; "
        "fails if they grow",
    )
    parser.add_argument("--begin", type=int, default=4, help="bytes")
    parser.add_argument("--end", type=int, default=64 << 20, help="bytes")
    parser.add_argument("--factor", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.1, help="seconds of each size in each round")
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds for one program in one round; then it has failed"
    )
    parser.add_argument(
        "--horovod", default="", help="a Python that has stock Horovod, with its horovodrun beside it"
    )
    parser.add_argument(
        "--rows", choices=["all", "sizes", "step", "overlap"], default="all",
        help="with --private and --lab, what to measure: a step is that of ResNet-50's gradients; overlap is "
        "how much of its communication vanishes behind a backward that waits for an accelerator",
    )  # fmt: skip
    parser.add_argument("--old", default="", help="another gorun to measure too: a binary, or a commit")
    parser.add_argument("--output", type=Path, default=BUILD / "bench.md")
    args = parser.parse_args()

    load, found = os.getloadavg()[0], programs.find(args.horovod)
    if not any(program.name == programs.GORUN for program in found):
        sys.exit("bench: error: no bin/gorun: make builds it")
    if args.old:
        binary = binaries.find(args.old)
        library = binaries.library_of(binary, "old")
        own = [program for program in found if program.name in programs.OWN]
        if not binaries.linked([library]):
            own = [
                program for program in own if program.name not in (programs.GORUN_C, programs.GORUN_PRIVATE)
            ]
        found += [binaries.by(program, f"{program.name}, old", binary, library) for program in own]
    if args.busy:
        names = GORUN_PRIVATE, GORUN_TORCH
        found += [programs.beside(program, args.busy) for program in found if program.name in names]
    sizes = Sizes(args.begin, args.end, args.factor)
    bench = Bench(args, found)
    for setting in settings(args):
        if args.busy:
            bench.beside(setting.ranks, sizes)
        elif args.private:
            bench.private(setting.ranks, sizes)
        elif setting.hosts or args.operation != "allreduce":
            bench.operation(args.operation, setting, sizes)
        else:
            bench.one_host(setting.ranks, sizes)
    for hosts in args.lab:
        for mbit in args.mbit:
            # Below 1 MiB a limited link shows nothing that an unlimited one does not.
            bench.lab(hosts, mbit, Sizes(max(args.begin, 1 << 20), args.end, args.factor) if mbit else sizes)
    complaints = bench.complaints
    if args.large:
        for hosts, ranks in ((1, 2), (2, 1)):
            lines, wrong = growth.report(hosts, ranks, 1 << 30, args.min_time)
            bench.lines += lines
            complaints += wrong
    text = "\n".join(preamble(found, args.rounds, load) + bench.lines)
    print(text)
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(text)
    if complaints:
        sys.exit("\n".join(f"bench: error: {what}" for what in complaints))


if __name__ == "__main__":
    running.guard(main)
