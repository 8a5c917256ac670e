#!/usr/bin/env python3
"""Measures what it costs to authenticate and to encrypt what hosts send each other, one rank on each.

    build/lab up 2 && build/lab link --mbit 10000 1 && build/lab link --mbit 10000 2
    build/lab run python3 contrib/bench/guarded.py --hosts host1,host2

Three ways take turns: large tensors neither (--checksum=false), authenticated (the default), and everything
encrypted (--encrypt). A step computes and then sums the 161 gradients of ResNet-50, 102 MB. It computes for
real, by torch on CPUs with a batch of 32 images (--real), or it sleeps for 250 ms, as a program does that
waits for a GPU. Beside them stand allreduces of 1 to 64 MiB. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Callable

import running
from jax_ranks import resnet50

HERE = Path(__file__).resolve().parent
BINARY = HERE.parent.parent / "bin" / "gorun"
WAYS = {"neither": "--checksum=false", "authenticated": "--checksum", "encrypted": "--encrypt"}
PAUSE = 0.25  # seconds
SIZES = (1, 4, 16, 64)  # MiB
REPEATS = {1: 60, 4: 40, 16: 15, 64: 7}


def median(step: Callable[[], object], times: int) -> float:
    """Return the median seconds of a step, after one that does not count."""
    took = []
    for _ in range(times + 1):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def training() -> Callable[[], object]:
    """Return a step of real training."""
    import gorun.torch as hvd
    import torch

    from gpu_steps import resnet50 as network

    torch.manual_seed(1)
    model, images, _ = network(small=False)
    wanted = torch.zeros(len(images), dtype=torch.long)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-6), named_parameters=model.named_parameters()
    )

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), wanted).backward()
        optimizer.step()

    return step


def rank(real: bool, steps: int) -> None:
    """Measure as a rank of a job; rank 0 writes a line of JSON."""
    import gorun.numpy as hvd
    import numpy as np

    hvd.init()
    found = {}
    if real:
        found["training"] = median(training(), steps)
    else:
        gradients = [np.ones(shape, np.float32) for shape in resnet50()]

        def paused() -> None:
            time.sleep(PAUSE)
            hvd.grouped_allreduce(gradients, name="gradients")

        found["pause"] = median(paused, steps)
        for size in SIZES:
            tensor = np.ones(size << 18, np.float32)
            found[f"{size} MiB"] = median(
                lambda t=tensor: hvd.allreduce(t, name="sum"),  # type: ignore[misc]
                REPEATS[size],
            )
    if hvd.rank() == 0:
        print(json.dumps(found))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="host1,host2")
    parser.add_argument("--rounds", type=int, default=5, help="jobs of each way, in turns")
    parser.add_argument("--steps", type=int, default=12, help="of a job, after the first")
    parser.add_argument("--real", action="store_true", help="compute for real, with torch")
    parser.add_argument("--python", default="python3", help="on the hosts, with NumPy, or torch")
    parser.add_argument("--timeout", type=int, default=600, help="seconds, of a job")
    o = parser.parse_args()
    where = ["-np", str(len(o.hosts.split(","))), "-H", o.hosts]
    rows: dict[str, dict[str, list[float]]] = {}
    for _ in range(o.rounds):
        for way, flag in WAYS.items():
            program = [o.python, str(Path(__file__).resolve()), "--rank", "real" if o.real else "pause"]
            command = [str(BINARY), "--no-tag-output", flag, *where, *program, str(o.steps)]
            code, out, err = running.run(command, o.timeout, "/")
            if code != 0:
                sys.exit(f"{' '.join(command)} ends with {code}:\n{out}{err}")
            for what, seconds in json.loads(out.splitlines()[-1]).items():
                rows.setdefault(what, {}).setdefault(way, []).append(seconds)
    print(f"Medians of {o.rounds} jobs in turns, in ms; in brackets the least and the most.\n")
    print(f"| | {' | '.join(WAYS)} | authenticated / neither | encrypted / neither |")
    print("|---|---|---|---|---|---|")
    for what, ways in rows.items():
        middle = {way: statistics.median(times) for way, times in ways.items()}
        cells = [
            f"{1e3 * middle[way]:.1f} ({1e3 * min(times):.1f}-{1e3 * max(times):.1f})"
            for way, times in ways.items()
        ]
        ratios = [f"{middle[way] / middle['neither']:.3f}" for way in list(WAYS)[1:]]
        print(f"| {what} | {' | '.join(cells + ratios)} |")


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank(sys.argv[-2] == "real", int(sys.argv[-1]))
    else:
        running.guard(main)
