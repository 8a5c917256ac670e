#!/usr/bin/env python3
"""Measure the paths of tensors on GPUs beside each other: gorun's, NCCL by torch, gloo.

    contrib/bench/gpu.py --out results                  # 1, 2, 4 and 8 ranks on the GPUs that are there
    contrib/bench/gpu.py --out results --ranks 2 --minutes 2
    contrib/bench/gpu.py --out results/two --hosts 2 --ranks 2,4,8 --paths nccl,hierarchical,host

It needs gorun (bin/gorun, or --gorun), torch with CUDA in this Python, and a GPU. It writes results/gpu.md,
a table, and results/gpu.json, and ends within --minutes. A case that fails or is cut short is in the table
with the reason. Where there are more ranks than GPUs, ranks share them, and NCCL gets its experimental switch
for that. With --hosts, daemons of this machine stand for so many hosts: what is between them is the loopback
device. The figures are medians of rank 0 after a first sum, whose result is checked.

This file is also the program of the ranks: gpu.py --rank PATH.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

SIZES = [4, 4 << 10, 256 << 10, 4 << 20, 64 << 20, 1 << 30]  # bytes
PATHS = {
    "nccl": "gorun --gpu-path nccl",
    "hierarchical": "gorun --gpu-path hierarchical",
    "ipc": "gorun --gpu-path ipc",
    "host": "gorun --gpu-path host",
    "torch-nccl": "torch.distributed, NCCL",
    "torch-gloo": "torch.distributed, gloo",
    "copy": "pinned copies to the host and back",
}
GORUNS = ("nccl", "hierarchical", "ipc", "host")
CASE_SECONDS = 90.0  # of one number of ranks on one path
SIZE_SECONDS = 3.0  # of one size
SEVERAL = "NCCL_MULTI_RANK_GPU_ENABLE"


class Memory:
    """Memory of the GPU that holds float32, as a path needs it."""

    def fill(self, value: float) -> None:
        """Set all elements."""
        raise NotImplementedError

    def ends(self) -> tuple[float, float]:
        """Return the first and the last element, when all operations have ended."""
        raise NotImplementedError


class Tensor(Memory):
    """A tensor of torch's."""

    def __init__(self, count: int) -> None:
        import torch

        self.torch = torch
        self.tensor = torch.ones(count, dtype=torch.float32, device="cuda")

    def fill(self, value: float) -> None:
        self.tensor.fill_(value)
        self.torch.cuda.synchronize()

    def ends(self) -> tuple[float, float]:
        self.torch.cuda.synchronize()
        return float(self.tensor[0]), float(self.tensor[-1])


class Standin(Memory):
    """Memory of the stand-in for CUDA's driver, which is the host's: for the test of this program."""

    def __init__(self, count: int) -> None:
        self.elements = (ctypes.c_float * count)()
        self.address = ctypes.addressof(self.elements)

    def fill(self, value: float) -> None:
        for i in {0, len(self.elements) - 1}:
            self.elements[i] = value

    def ends(self) -> tuple[float, float]:
        return self.elements[0], self.elements[-1]


class Ranks:
    """A path: sums over the ranks."""

    rank = 0
    size = 1

    def memory(self, count: int) -> Memory:
        """Return new memory."""
        return Tensor(count)

    def sum(self, memory: Any) -> None:
        """Add up the ranks' memory, in place, and wait for it."""
        raise NotImplementedError


class Gorun(Ranks):
    """horovod.torch under gorun."""

    def __init__(self) -> None:
        import gorun.torch as hvd
        import torch

        hvd.init()
        torch.cuda.set_device(hvd.rank() % torch.cuda.device_count())
        self.hvd, self.rank, self.size = hvd, hvd.rank(), hvd.size()

    def sum(self, memory: Any) -> None:
        self.hvd.allreduce_(memory.tensor, name=f"bench.{memory.tensor.numel()}", op=self.hvd.Sum)


class Pointers(Ranks):
    """The group below horovod.torch, without torch: over the stand-ins."""

    def __init__(self) -> None:
        from gorun import basics, constants
        from gorun.gpu import nccl, route

        nccl.candidates = lambda: ["libnccl.so.2"]  # the stand-in, also where a wheel brings NVIDIA's
        basics.init()
        self.rank, self.size, self.op = basics.rank(), basics.size(), constants.SUM
        ordinal = basics.rank() % int(os.environ["BENCH_STANDIN"])
        group = route.route(basics.world(), ordinal).settle()
        if group is None:
            raise SystemExit("tensors would go by the host")
        self.group = group

    def memory(self, count: int) -> Memory:
        return Standin(count)

    def sum(self, memory: Any) -> None:
        count = len(memory.elements)
        work = self.group.allreduce(
            f"allreduce.{count}", memory.address, memory.address, count, "float32", self.op, 0
        )
        if not work.wait():
            raise SystemExit("left to the host")


class Torch(Ranks):
    """torch.distributed."""

    def __init__(self, backend: str) -> None:
        import torch
        from torch import distributed as dist

        torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
        dist.init_process_group(backend)
        self.dist, self.cuda, self.rank, self.size = dist, torch.cuda, dist.get_rank(), dist.get_world_size()

    def sum(self, memory: Any) -> None:
        self.dist.all_reduce(memory.tensor)
        self.cuda.synchronize()


class Copy(Ranks):
    """No sum: how long the copies to pinned memory and back take.

    The path by the host cannot do without them.
    """

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.rank, self.size = int(os.environ["RANK"]), 1  # the sum of one rank's is its own
        torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())

    def sum(self, memory: Any) -> None:
        host = getattr(memory, "host", None)
        if host is None:
            host = memory.host = self.torch.empty_like(memory.tensor, device="cpu").pin_memory()
        host.copy_(memory.tensor, non_blocking=True)
        memory.tensor.copy_(host, non_blocking=True)
        self.torch.cuda.synchronize()


def path_of(name: str) -> Ranks:
    """Return a path, in a rank."""
    if name == "copy":
        return Copy()
    if name.startswith("torch-"):
        return Torch(name[len("torch-") :])
    return Pointers() if os.environ.get("BENCH_STANDIN") else Gorun()


def measure(
    ranks: Ranks, nbytes: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the median seconds of a sum, on this rank. All ranks do it equally often."""
    memory = ranks.memory(max(nbytes // 4, 1))
    memory.fill(1.0)
    ranks.sum(memory)
    if memory.ends() != (ranks.size, ranks.size):
        raise SystemExit(f"wrong sum of {nbytes} bytes: {memory.ends()} with {ranks.size} ranks")
    # How often is a matter of the size alone: ranks must agree without another operation.
    times = []
    for _ in range(max(3, min(100, int(seconds * 2e8 / max(nbytes, 1 << 16) / 10)))):
        memory.fill(1.0)
        began = clock()
        ranks.sum(memory)
        times.append(clock() - began)
    return statistics.median(times)


def rank_main(name: str, sizes: list[int]) -> None:
    """Measure a path as one of its ranks; rank 0 writes a line of JSON for each size."""
    ranks = path_of(name)
    for nbytes in sizes:
        seconds = measure(ranks, nbytes, SIZE_SECONDS)
        if ranks.rank == 0:
            print(json.dumps({"bytes": nbytes, "seconds": seconds}), flush=True)


def run(command: list[str], ranks: int, gpus: int, limit: float) -> tuple[str, str, str]:
    """Run a job, and return its output, its messages, and what went wrong, "" if nothing did."""
    environ = dict(os.environ)
    if ranks > gpus:
        environ[SEVERAL] = "1"
    error = ""
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        try:
            out, said = job.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            error = f"cut short after {limit:.0f} s"
            out, said = _end(job)
    if job.returncode and not error:
        lines = [line for line in said.splitlines() if "rror" in line] or said.splitlines() or ["no reason"]
        error = lines[-1].strip()[:200]
    return out, said, error


def hosts_of(ranks: int, hosts: int) -> str:
    """Return so many names of this machine, with slots for the ranks."""
    names = ["localhost", *(f"127.0.0.{i}" for i in range(1, hosts))]
    return ",".join(f"{name}:{ranks // hosts}" for name in names)


def run_case(
    gorun: str, name: str, ranks: int, hosts: int, gpus: int, sizes: list[int], limit: float
) -> dict[str, Any]:
    """Run one number of ranks on one path, and return its seconds by size, with what went wrong."""
    here = os.path.abspath(__file__)
    way = ["-v", "--gpu-path", name] if name in GORUNS else []
    program = [sys.executable, "-B", here, "--rank", name, "--sizes", ",".join(map(str, sizes))]
    where = ["-np", str(ranks), "-H", hosts_of(ranks, hosts)]
    command = [gorun, *where, "--no-tag-output", *way, *program]
    result: dict[str, Any] = {"path": name, "ranks": ranks, "seconds": {}, "error": ""}
    if ranks % hosts:
        return {**result, "error": f"hosts would have different numbers of ranks, of {hosts}"}
    if name == "ipc" and 1 < ranks <= gpus:
        return {**result, "error": "each rank has a GPU of its own"}
    if name == "ipc" and ranks % gpus:
        return {**result, "error": "GPUs would have different numbers of ranks: it would go by the host"}
    if ranks == 1 and name in GORUNS and name != "host":
        return {**result, "error": "one rank goes by the host"}
    out, said, result["error"] = run(command, ranks, gpus, limit)
    for line in out.splitlines():
        if line.startswith('{"bytes"'):
            found = json.loads(line)
            result["seconds"][found["bytes"]] = found["seconds"]
    other = another_path(name, said)
    if other:  # what was measured is not this path
        result.update(seconds={}, error=result["error"] or other[:200])
    return result


def another_path(name: str, said: str) -> str:
    """Return what ranks wrote of a path that they took in place of the one they were to take, "" for none."""
    took = [line.strip() for line in said.splitlines() if "tensors on GPUs go by " in line]
    others = [line for line in took if f"go by {name}:" not in line]
    if others or took or name not in GORUNS or name == "host":
        return "".join(others[:1])
    return "no rank said by which path it went"


def _end(job: subprocess.Popen[str]) -> tuple[str, str]:
    """End a job, whose ranks gorun ends, and return what it wrote."""
    job.terminate()
    try:
        return job.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        job.kill()
        return job.communicate()


def table(results: list[dict[str, Any]], sizes: list[int], about: str) -> str:
    """Return results as a page."""
    lines = [
        "# Sums of float32 on GPUs", "", about, "",
        "Median µs of rank 0; in brackets GB/s of the tensor. What went wrong has its reason below.", "",
        "| path | ranks | " + " | ".join(map(size_of, sizes)) + " |",
        "|---|---:|" + "---:|" * len(sizes),
    ]  # fmt: skip
    for case in results:
        cells = []
        for nbytes in sizes:
            seconds = case["seconds"].get(nbytes)
            if seconds is None:
                cells.append("–")
            else:
                cells.append(f"{seconds * 1e6:,.0f} ({nbytes / seconds / 1e9:.1f})")
        lines.append(f"| {PATHS[case['path']]} | {case['ranks']} | " + " | ".join(cells) + " |")
    wrong = [case for case in results if case["error"]]
    lines += [""] + [f"- {PATHS[case['path']]}, {case['ranks']} ranks: {case['error']}" for case in wrong]
    return "\n".join(lines).rstrip() + "\n"


def size_of(nbytes: int) -> str:
    """Return a size as people write it."""
    for unit, name in (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"):
        if nbytes >= unit:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def devices() -> tuple[int, str]:
    """Return the number of GPUs, and what measures: models, versions, machine."""
    if os.environ.get("BENCH_STANDIN"):
        about = "Stand-ins for CUDA and NCCL on the host: a test of this program, no measurement."
        return int(os.environ["BENCH_STANDIN"]), about
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("gpu.py: no GPU that torch can use")
    count = torch.cuda.device_count()
    version = ".".join(map(str, torch.cuda.nccl.version()))
    cuda = f"torch {torch.__version__} with CUDA {torch.version.cuda} and NCCL {version}"
    what = f"{count} × {torch.cuda.get_device_name(0)}, {cuda}, {os.cpu_count()} CPUs"
    return count, f"{what}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}."


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the paths of tensors on GPUs beside each other.")
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--gorun", default=str(root / "bin" / "gorun"), help="the binary")
    parser.add_argument("--out", type=Path, help="the folder for the table")
    parser.add_argument("--ranks", default="1,2,4,8", help="numbers of ranks, with commas")
    parser.add_argument("--hosts", type=int, default=1, help="hosts that daemons of this machine stand for")
    parser.add_argument("--paths", default=",".join(PATHS), help="paths, with commas: " + ", ".join(PATHS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, with commas")
    parser.add_argument("--minutes", type=float, default=9.5, help="after which nothing more begins or runs")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(text) for text in options.sizes.split(",")]
    if options.rank:
        rank_main(options.rank, sizes)
        return
    if options.out is None:
        parser.error("--out is missing")
    until = time.monotonic() + 60 * options.minutes
    gpus, about = devices()
    options.out.mkdir(parents=True, exist_ok=True)
    results = []
    for ranks in map(int, options.ranks.split(",")):
        for name in options.paths.split(","):
            left = until - time.monotonic()
            if left < 5:
                results.append({"path": name, "ranks": ranks, "seconds": {}, "error": "no time was left"})
            else:
                results.append(run_case(
                    options.gorun, name, ranks, options.hosts, gpus, sizes, min(left, CASE_SECONDS)
                ))  # fmt: skip
            # After each case: what there is counts, whatever happens to this machine.
            command = "contrib/bench/gpu.py " + " ".join(sys.argv[1:])
            page = table(results, sizes, f"{about} `{command}`")
            (options.out / "gpu.md").write_text(page)
            (options.out / "gpu.json").write_text(json.dumps({"about": about, "results": results}, indent=1))
            print(f"{PATHS[name]}, {ranks} ranks: {results[-1]['error'] or 'measured'}", file=sys.stderr)
    print(page, end="")


if __name__ == "__main__":
    main()
