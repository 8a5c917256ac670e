#!/usr/bin/env python3
"""Compares two gorun binaries in turns, over the rows of the benchmarks, and fails if the new one is slower.

    python3 contrib/bench/check.py OLD

OLD is a binary, or a commit of this repository, which is built first. A row that seems slower is measured
again; what is slower twice, beyond a tenth, makes this program exit with 1. So does a daemon that needs more
memory. Prints tables, and writes them to a file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import growth
import peers
import programs
import running
from binaries import by, find, library_of, linked
from programs import BUILD, Program, Setting, Sizes

OLD, NEW = "old", "new"
SLOWER = 0.9  # old / new, below which a row is slower
FEW = 4 << 20  # bytes of memory that are not worth a complaint: Go's heap grows by as many at once


@dataclass
class Part:
    """Rows that one program brings."""

    setting: Setting
    program: str
    sizes: Sizes


@dataclass
class Row:
    """Medians of the two binaries: times in µs, or a daemon's memory in bytes."""

    title: str
    old: float
    new: float
    slack: float = 0.0  # by which the new one may be larger

    def ratio(self) -> float:
        return self.old / self.new

    def slower(self) -> bool:
        return self.ratio() < SLOWER and self.new - self.old > self.slack


def sides(program: Program, binaries: dict[str, tuple[Path, str]]) -> list[Program]:
    """A program with each binary and its library."""
    return [by(program, name, binary, library) for name, (binary, library) in binaries.items()]


def parts(ranks: list[int], sizes: Sizes, lab: tuple[str, ...]) -> list[Part]:
    """What is measured. lab is the prefix of a command that runs on two lab hosts, if they are there."""
    measured = []
    for n in ranks:
        setting = Setting(f"1 host, {n} ranks", n)
        names = [programs.GORUN, programs.GORUN_C, programs.GORUN_PRIVATE, programs.GORUN_TORCH]
        measured += [Part(setting, name, sizes) for name in names]
        steps = [programs.GORUN_TORCH, programs.GORUN_DDP]
        measured += [Part(setting, name, programs.STEP) for name in steps]
    if lab:
        setting = Setting("2 lab hosts", 2, "host1:1,host2:1", lab)
        measured += [Part(setting, name, sizes) for name in (programs.GORUN, programs.GORUN_C)]
    return measured


def measure(
    part: Part, program: Program, binaries: dict[str, tuple[Path, str]], args: argparse.Namespace
) -> list[Row]:
    """Measures the rows of a part, in turns."""
    title = f"{part.setting.title}, {part.program}"
    runners, sizes = sides(program, binaries), part.sizes
    setting = replace(part.setting, title=title)
    times, failures = peers.compare(runners, setting, sizes, args.rounds, args.min_time, args.timeout)
    if failures:
        sys.exit("\n".join(f"bench: error: {title}: {failure}" for failure in failures))
    return [
        Row(f"{title}, {size if isinstance(size, str) else peers.human(size)}", row["p50_us"],
            times[NEW][size]["p50_us"])
        for size, row in times[OLD].items() if size != programs.ALONE
    ]  # fmt: skip


def memory(binaries: dict[str, tuple[Path, str]], rounds: int) -> list[Row]:
    """The most memory that a daemon has of its own, without what it shares with its ranks."""
    rows = []
    for hosts, ranks, size in (1, 2, 64 << 20), (2, 1, 256 << 10), (2, 1, 64 << 20):
        most: dict[str, list[int]] = {side: [] for side in binaries}
        for number in range(rounds):
            print(f"memory: round {number + 1} of {rounds}: {hosts} x {ranks}", file=sys.stderr, flush=True)
            for side, (binary, _) in binaries.items():
                watch = growth.Watch()
                growth.run(hosts, ranks, size, 0.1, watch, binary=binary)
                most[side].append(watch.own)
        title = f"{hosts} x {ranks} ranks, {peers.human(size)}"
        rows.append(Row(title, statistics.median(most[OLD]), statistics.median(most[NEW]), FEW))
    return rows


def confirmed(rows: list[Row], again: list[Row]) -> list[Row]:
    """The rows; of those that seemed slower, the better of the two measurements."""
    second = {row.title: row for row in again}
    return [max(row, second.get(row.title, row), key=Row.ratio) if row.slower() else row for row in rows]


def mebibytes(size: float) -> str:
    return f"{size / (1 << 20):.1f}"


def table(rows: list[Row], unit: str = "µs", worse: str = "slower") -> list[str]:
    lines = [f"| row | old, {unit} | new, {unit} | old / new |", "|---|---:|---:|---:|"]
    for row in rows:
        mark = f" **{worse}**" if row.slower() else ""
        number = peers.micros if unit == "µs" else mebibytes
        cells = [row.title, number(row.old), number(row.new), f"{row.ratio():.2f}{mark}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("old", help="the binary to compare with, or a commit")
    parser.add_argument("--new", default=str(programs.BINARY), help="the other binary")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2], help="numbers of ranks on one host")
    parser.add_argument("--no-lab", action="store_true", help="no lab hosts, which need root")
    parser.add_argument("--begin", type=int, default=4, help="bytes")
    parser.add_argument("--end", type=int, default=64 << 20, help="bytes")
    parser.add_argument("--factor", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--min-time", type=float, default=0.1, help="seconds of each size in each round")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one program in one round")
    parser.add_argument("--output", type=Path, default=BUILD / "bench-check.md")
    args = parser.parse_args()

    load, found = os.getloadavg()[0], {program.name: program for program in programs.own()}
    binaries = {}
    for side, binary in ((NEW, Path(args.new).resolve()), (OLD, find(args.old))):
        if not os.access(binary, os.X_OK):
            sys.exit(f"bench: error: no {binary}: make builds it")
        binaries[side] = binary, library_of(binary, side)
    if not linked([library for _, library in binaries.values()]):
        for name in programs.GORUN_C, programs.GORUN_PRIVATE:
            found.pop(name, None)
    sizes = Sizes(args.begin, args.end, args.factor)

    def all_rows(lab: tuple[str, ...]) -> tuple[list[Row], list[str]]:
        rows: list[Row] = []
        missing = []
        for part in parts(args.ranks, sizes, lab):
            program = found.get(part.program)
            if program is None:
                missing.append(f"Not measured: {part.setting.title}, {part.program}.")
                continue
            of_part = measure(part, program, binaries, args)
            if any(row.slower() for row in of_part):
                of_part = confirmed(of_part, measure(part, program, binaries, args))
            rows += of_part
        return rows, missing

    if args.no_lab or os.geteuid() != 0:
        rows, missing = all_rows(())
        missing.append("Not measured: 2 lab hosts.")
    else:
        with peers.lab(2, 0) as lab:
            rows, missing = all_rows(lab)
    needed = memory(binaries, args.rounds)
    versions = {side: programs.output([str(binary), "--version"]) for side, (binary, _) in binaries.items()}
    busy = ": do not trust these figures" if load > (os.cpu_count() or 1) / 2 else ""
    text = "\n".join([
        f"# {versions[OLD]} and {versions[NEW]}", "",
        f"Medians of {args.rounds} rounds in turns. {peers.machine()}; load average at the start "
        f"{load:.2f}{busy}.", "", *table(rows), "", *missing, "",
        "The most memory that a daemon has of its own, on so many hosts with so many ranks each:", "",
        *table(needed, "MiB", "larger"), "",
    ])  # fmt: skip
    print(text)
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(text)
    complaints = [f"{row.title}: {row.ratio():.2f} of the old speed" for row in rows if row.slower()]
    complaints += [f"{row.title}: a daemon has {mebibytes(row.new)} MiB, not {mebibytes(row.old)}"
                   for row in needed if row.slower()]  # fmt: skip
    if complaints:
        sys.exit("\n".join(f"bench: error: {complaint}" for complaint in complaints))


if __name__ == "__main__":
    running.guard(main)
