#!/usr/bin/env python3
"""Measures steps of ResNet-50's 161 gradients on one host to all, one rank on each, over TCP and over RDMA.

    python3 contrib/bench/rdma.py --hosts host1,host2,host3,host4

TCP and RDMA take turns. The table has the median step, and what the daemons of all hosts spent of their CPUs
for a byte that went between hosts. A step has no computing in it. Over Soft-RoCE, and over the stand-in for
libibverbs, the kernel or the library copies every byte on these same CPUs: then the table speaks of copies
and of CPU time, and not of the speed that a device would have.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import running
from jax_ranks import STEP_BYTES, resnet50

HERE = Path(__file__).resolve().parent
BINARY = HERE.parent.parent / "bin" / "gorun"
TIMEOUT = 120  # seconds, of one job
STEPS = 8
SENT = re.compile(r"between hosts: sent (\d+) bytes(?: \((\d+) over RDMA\))?")


def cpu(pid: int) -> float:
    """Return the seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rank() -> None:
    """Run the steps, as a rank of a job."""
    import gorun.numpy as hvd
    import numpy as np

    hvd.init()
    gradients = [np.ones(shape, np.float32) for shape in resnet50()]
    hvd.grouped_allreduce(gradients, name="first")
    before = cpu(os.getppid())
    times = []
    for step in range(STEPS):
        begin = time.perf_counter()
        hvd.grouped_allreduce(gradients, name=f"step{step}")
        times.append(time.perf_counter() - begin)
    mine = np.array([cpu(os.getppid()) - before, statistics.median(times)])
    all_ranks = hvd.allgather(mine.reshape(1, 2), name="times")
    if hvd.rank() == 0:
        print(json.dumps({"step": float(all_ranks[:, 1].max()), "cpu": float(all_ranks[:, 0].sum())}))


Row = tuple[float, float, str]


def measure(python: str, hosts: list[str], flags: list[str]) -> Row:
    """Return the time of a step in ms, the daemons' CPU time by byte in ns, and how much went over RDMA."""
    where = ["-np", str(len(hosts)), "-H", ",".join(f"{host}:1" for host in hosts)]
    command = [
        str(BINARY),
        "-v",
        "--no-tag-output",
        *where,
        *flags,
        python,
        str(Path(__file__).resolve()),
        "--rank",
    ]
    code, out, err = running.run(command, TIMEOUT, "/")
    if code != 0:
        sys.exit(f"{' '.join(command)} ends with {code}:\n{out}{err}")
    found = json.loads(out.splitlines()[-1])
    sent = SENT.search(err)
    total = int(sent[1]) if sent else 0
    over = f"{int(sent[2] or 0) / total:.0%}" if sent and total else "-"
    mine = total * STEPS / (STEPS + 1)  # without the first step
    return 1000 * found["step"], 1e9 * found["cpu"] / mine if mine else 0, over


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="host1,host2,host3,host4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="python3", help="on the hosts, with NumPy")
    parser.add_argument("--rdma", default="on", help="as --rdma of gorun")
    parser.add_argument("--library", default="", help="in place of libibverbs, for the stand-in")
    o = parser.parse_args()
    hosts = o.hosts.split(",")
    rdma = ["--rdma", o.rdma, *(["--rdma-library", o.library] if o.library else [])]
    print(
        f"Steps of ResNet-50's gradients ({STEP_BYTES / 1e6:.0f} MB); medians of {o.rounds} jobs in turns.\n"
    )
    print("| hosts | TCP | RDMA | TCP / RDMA | TCP, CPU by byte | RDMA, CPU by byte | over RDMA |")
    print("|---|---|---|---|---|---|---|")
    for n in range(1, len(hosts) + 1):
        ways: tuple[list[Row], list[Row]] = [], []
        for _ in range(o.rounds):
            ways[0].append(measure(o.python, hosts[:n], []))
            ways[1].append(measure(o.python, hosts[:n], rdma if n > 1 else []))
        tcp, over = (statistics.median(row[0] for row in way) for way in ways)
        spent = " | ".join(f"{statistics.median(row[1] for row in way):.2f} ns" for way in ways)
        print(f"| {n} | {tcp:.0f} ms | {over:.0f} ms | {tcp / over:.2f} | {spent} | {ways[1][-1][2]} |")
    print("\nWhere CPUs imitate the device (Soft-RoCE, the stand-in), it speaks of copies and CPU time only.")


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank()
    else:
        running.guard(main)
