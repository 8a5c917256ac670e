#!/usr/bin/env python3
"""Measures steps of ResNet-50's 161 gradients on one host to all, one rank on each, over TCP and over RDMA.

    python3 contrib/bench/rdma.py --hosts host1,host2,host3,host4

TCP and RDMA take turns. The table has the median step, and the CPU time for a byte that went between hosts:
of the daemons, and of the machines, where the kernel's part counts as well. Nothing else may run on them. A
step has no computing in it. Over Soft-RoCE, and over the stand-in for libibverbs, the kernel or the library
copies every byte on these same CPUs: then the table speaks of copies and of CPU time, and not of the speed
that a device would have.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
import zlib
from pathlib import Path

import running
from jax_ranks import STEP_BYTES, resnet50

HERE = Path(__file__).resolve().parent
BINARY = HERE.parent.parent / "bin" / "gorun"
SENT = re.compile(r"between hosts: sent (\d+) bytes(?: \((\d+) over RDMA\))?")


def cpu(pid: int) -> float:
    """Return the seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy() -> float:
    """Return the seconds that the CPUs of this machine have computed."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def machine() -> int:
    """Return a number of this machine, which the hosts of a lab share."""
    return zlib.crc32(Path("/proc/sys/kernel/random/boot_id").read_bytes())


def rank(steps: int) -> None:
    """Run the steps, as a rank of a job."""
    import gorun.numpy as hvd
    import numpy as np

    hvd.init()
    gradients = [np.ones(shape, np.float32) for shape in resnet50()]
    hvd.grouped_allreduce(gradients, name="first")
    before, whole = cpu(os.getppid()), busy()
    times = []
    for step in range(steps):
        begin = time.perf_counter()
        hvd.grouped_allreduce(gradients, name=f"step{step}")
        times.append(time.perf_counter() - begin)
    mine = np.array([statistics.median(times), cpu(os.getppid()) - before, busy() - whole, machine()])
    ranks = hvd.allgather(mine.reshape(1, 4), name="times")
    if hvd.rank() == 0:
        machines = {row[3]: float(row[2]) for row in ranks}
        print(
            json.dumps(
                {
                    "step": float(ranks[:, 0].max()),
                    "daemons": float(ranks[:, 1].sum()),
                    "machines": sum(machines.values()),
                }
            )
        )


Row = tuple[float, float, float, str]


def measure(python: str, hosts: list[str], flags: list[str], steps: int, timeout: int) -> Row:
    """Return the ms of a step, the ns of CPU for a byte of daemons and of machines, and what RDMA carried."""
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
        str(steps),
    ]
    code, out, err = running.run(command, timeout, "/")
    if code != 0:
        sys.exit(f"{' '.join(command)} ends with {code}:\n{out}{err}")
    found = json.loads(out.splitlines()[-1])
    sent = SENT.search(err)
    total = int(sent[1]) if sent else 0
    over = f"{int(sent[2] or 0) / total:.0%}" if sent and total else "-"
    of_steps = total * steps / (steps + 1)  # without the first step
    spent = [1e9 * found[who] / of_steps if of_steps else 0 for who in ("daemons", "machines")]
    return 1000 * found["step"], spent[0], spent[1], over


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="host1,host2,host3,host4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="of a job, after the first")
    parser.add_argument("--timeout", type=int, default=300, help="seconds, of a job")
    parser.add_argument("--python", default="python3", help="on the hosts, with NumPy")
    parser.add_argument("--rdma", default="on", help="as --rdma of gorun")
    parser.add_argument("--library", default="", help="in place of libibverbs, for the stand-in")
    o = parser.parse_args()
    hosts = o.hosts.split(",")
    rdma = ["--rdma", o.rdma, *(["--rdma-library", o.library] if o.library else [])]
    print(
        f"Steps of ResNet-50's gradients ({STEP_BYTES / 1e6:.0f} MB); medians of {o.rounds} jobs in turns.\n"
    )
    print("| hosts | step: TCP | RDMA | TCP / RDMA | CPU for a byte, daemons: TCP | RDMA ", end="")
    print("| machines: TCP | RDMA | over RDMA |")
    print("|---|---|---|---|---|---|---|---|---|")
    for n in range(1, len(hosts) + 1):
        ways: tuple[list[Row], list[Row]] = [], []
        for _ in range(o.rounds):
            ways[0].append(measure(o.python, hosts[:n], [], o.steps, o.timeout))
            ways[1].append(measure(o.python, hosts[:n], rdma if n > 1 else [], o.steps, o.timeout))
        tcp, over = (statistics.median(row[0] for row in way) for way in ways)
        spent = " | ".join(
            f"{statistics.median(row[who] for row in way):.2f} ns" if n > 1 else "-"
            for who in (1, 2)
            for way in ways
        )
        print(
            f"| {n} | {tcp:.0f} ms | {over:.0f} ms | {tcp / over:.2f} | {spent} | {ways[1][-1][3]} |",
            flush=True,
        )
    print("\nWhere CPUs imitate the device (Soft-RoCE, the stand-in), it speaks of copies and CPU time only.")


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank(int(sys.argv[-1]))
    else:
        running.guard(main)
