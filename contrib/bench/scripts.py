#!/usr/bin/env python3
"""Measures Horovod scripts, unchanged, under gorun and under stock Horovod: the training of digits, the
synthetic ResNet and the elastic synthetic one of contrib/examples, and a step of ResNet-50's 161 gradients.

In each round both run once, one after the other, and every other round the other one is first. What counts
are medians over the rounds; the rounds' own ratios say how far to trust them. Both use the same torch.
Prints a table, and writes it to a file.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import programs
import running
from peers import machine
from programs import BINARY, BUILD, HERE, ROOT

TIMEOUT = 600  # seconds, of one program in one round
EXAMPLES = ROOT / "contrib" / "examples"


@dataclass
class Script:
    """A program, and the pattern of its lines with a speed; the median of several counts."""

    name: str
    unit: str
    words: list[str]
    says: str
    elastic: bool = False
    fast_is_less: bool = False


@dataclass
class Outcome:
    """The speed that a program reports, and the seconds from its launch to its end."""

    rate: float
    took: float


def scripts(quick: bool) -> list[Script]:
    """The measured programs; quick is for a short trial."""
    epochs, iters, batches = ("3", "2", "50") if quick else ("8", "6", "200")
    small = ["--batch-size", "2", "--image-size", "64", "--num-iters", iters]
    step = ["--sizes", "step", "--min-time", "0.5" if quick else "2"]
    examples = str(EXAMPLES)
    return [
        Script(
            "digits", "images/s", [f"{examples}/digits_torch.py", "--epochs", epochs], r"([\d,.]+) images/s"
        ),
        Script(
            "synthetic ResNet", "images/s", [f"{examples}/synthetic_torch.py", "--no-cuda", *small],
            r"Total img/sec.*: ([\d.]+) ",
        ),
        Script(
            "elastic synthetic", "samples/s",
            [f"{examples}/synthetic_elastic_torch.py", "--num-batches", batches],
            r"Total samples/sec.*: ([\d.]+)", elastic=True,
        ),
        Script(
            "step of ResNet-50's gradients", "ms", [str(HERE / "horovod_torch.py"), *step],
            r'"rows": \[\{[^}]*"p50_us": ([\d.]+)', fast_is_less=True,
        ),
    ]  # fmt: skip


def under_gorun(script: Script, ranks: int, python: str, folder: Path) -> list[str]:
    where = ["-np", str(ranks)]
    if script.elastic:
        where += ["--min-np", str(ranks), "--host-discovery-script", discovery(folder, ranks)]
    return [str(BINARY), *where, "--no-tag-output", python, "-B", *script.words]


def under_horovod(script: Script, ranks: int, python: str, folder: Path) -> list[str]:
    where = ["-np", str(ranks)]
    if script.elastic:
        # Its elastic launcher needs two hosts unless the interface is given.
        where += ["--min-np", str(ranks), "--network-interfaces", "lo"]
        where += ["--host-discovery-script", discovery(folder, ranks)]
    launcher = str(Path(python).with_name("horovodrun"))
    return [launcher, "--gloo", *where, "env", "PYTHONUNBUFFERED=1", python, "-B", *script.words]


def discovery(folder: Path, ranks: int) -> str:
    """A discovery script that always prints this host."""
    path = folder / f"hosts{ranks}.sh"
    path.write_text(f"#!/bin/sh\necho localhost:{ranks}\n")
    path.chmod(0o755)
    return str(path)


def once(script: Script, command: list[str]) -> Outcome:
    """Runs a program to its end."""
    start = time.monotonic()
    try:
        status, out, err = running.run(command, TIMEOUT, HERE)
    except subprocess.TimeoutExpired:
        sys.exit(f"bench: error: {command[0]}, {script.name}: no end after {TIMEOUT} s")
    took = time.monotonic() - start
    rate = reached(script, out)
    if status != 0 or rate is None:
        sys.exit(f"bench: error: {' '.join(command)}: exit status {status}\n{out}{err}")
    return Outcome(rate, took)


def reached(script: Script, said: str) -> float | None:
    """The speed that a program reports; the first of several is a warm-up and does not count."""
    values = [float(value.replace(",", "")) for value in re.findall(script.says, said)]
    if script.unit == "ms":
        values = [value / 1000 for value in values]
    return statistics.median(values[1:] or values) if values else None


def ratio(script: Script, ours: float, theirs: float) -> float:
    """Above 1: gorun is faster."""
    return theirs / ours if script.fast_is_less else ours / theirs


def row(script: Script, ranks: int, rounds: list[tuple[Outcome, Outcome]]) -> str:
    """A line of the table."""
    ours, theirs = ([pair[side].rate for pair in rounds] for side in (0, 1))
    ratios = [ratio(script, ours.rate, theirs.rate) for ours, theirs in rounds]
    middle = ratio(script, statistics.median(ours), statistics.median(theirs))
    seconds = [f"{statistics.median(pair[side].took for pair in rounds):.1f}" for side in (0, 1)]
    cells = [
        script.name, str(ranks), script.unit, spread(ours), spread(theirs),
        f"{middle:.2f} ({min(ratios):.2f}–{max(ratios):.2f})", *seconds,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def spread(values: list[float]) -> str:
    middle = statistics.median(values)
    digits = 0 if middle >= 100 else 1
    return f"{middle:,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


HEAD = [
    "script", "ranks", "in", "gorun", "stock Horovod", "gorun is faster by", "gorun, s in all",
    "Horovod, s in all",
]  # fmt: skip


def measure(args: argparse.Namespace, say: Callable[[str], None]) -> list[str]:
    """The lines of the table."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---:|---|" + "---:|" * (len(HEAD) - 3)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script in scripts(args.quick):
            for ranks in args.ranks:
                commands = [
                    under_gorun(script, ranks, args.python, folder),
                    under_horovod(script, ranks, args.horovod, folder),
                ]
                rounds = []
                for number in range(args.rounds):
                    say(f"{script.name}, {ranks} ranks: round {number + 1} of {args.rounds}")
                    order = (0, 1) if number % 2 == 0 else (1, 0)
                    outcomes = {side: once(script, commands[side]) for side in order}
                    rounds.append((outcomes[0], outcomes[1]))
                lines.append(row(script, ranks, rounds))
                say(lines[-1])  # so that an interrupted run has shown results
    return lines


def versions(args: argparse.Namespace) -> dict[str, str]:
    """The participants. With different versions of torch the comparison would be about torch."""
    ask = "import torch; print(torch.__version__)"
    found = {
        "gorun": programs.output([str(BINARY), "--version"]).removeprefix("gorun "),
        "Horovod": programs.output([args.horovod, "-c", "import horovod; print(horovod.__version__)"]),
        "torch": programs.output([args.horovod, "-c", ask]),
    }
    for name, version in found.items():
        if not version:
            sys.exit(f"bench: error: {args.horovod if name != 'gorun' else BINARY}: there is no {name}")
    ours = programs.output([args.python, "-c", ask])
    if ours != found["torch"]:
        sys.exit(
            f"bench: error: torch {ours or 'is missing'} in {args.python}, {found['torch']} in {args.horovod}"
        )
    return found


def preamble(args: argparse.Namespace, found: dict[str, str], load: float) -> list[str]:
    lines = [
        "# Horovod scripts under gorun and under stock Horovod",
        "",
        f"Medians of {args.rounds} alternating rounds, and their extremes in brackets; of the ratio, the "
        "extremes within one round. Seconds in all are from launch to end.",
        "",
        f"Machine: {machine()}; load average at the start {load:.2f}. "
        + "; ".join(f"{name} {version}" for name, version in found.items())
        + ".",
        "",
    ]
    if load > (os.cpu_count() or 1) / 2:
        lines += ["The machine was busy with something else: do not trust these figures.", ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--horovod", required=True, help="a Python with stock Horovod, with its horovodrun beside it"
    )
    parser.add_argument(
        "--python", help="a Python with the same torch, for gorun; by default the one that a venv was made of"
    )
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4], help="numbers of ranks, on this host")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few steps of each: only to see them run")
    parser.add_argument("--output", type=Path, default=BUILD / "compat.md")
    args = parser.parse_args()

    args.python = args.python or programs.output(
        [args.horovod, "-c", "import sys; print(sys._base_executable)"]
    )
    load, found = os.getloadavg()[0], versions(args)
    table = measure(args, lambda line: print(line, file=sys.stderr, flush=True))
    text = "\n".join([*preamble(args, found, load), *table, ""])
    print(text)
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(text)


if __name__ == "__main__":
    running.guard(main)
