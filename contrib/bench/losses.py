#!/usr/bin/env python3
"""Measures what the loss of a rank costs: how much of the time goes into new steps while ranks are killed.

Four ranks on this machine train a small model, a step of which takes --step seconds, under each of:

    gorun      --spares 1, a TorchState and a DistributedOptimizer
    torchrun   --max-restarts, and a checkpoint on disk each --checkpoint steps
    torchft    a replica group for each rank, which torchrun starts again
    ft_launcher of nvidia-resiliency-ext: as torchrun

Each --every seconds one of the ranks gets SIGKILL. The table has, for each: ETTR, the share of the time in
which the job makes steps that it has not made before, by the time of a step before the first fault; how long
no new step ends after a fault; and how many steps are repeated. A system that is missing is left out, with a
line.

    python contrib/bench/losses.py [--python PYTHON] [--minutes 5] [--every 60] [gorun torchrun …]

PYTHON has torch 2, and torchft-nightly and nvidia-resiliency-ext from PyPI for the peers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import running

ROOT = Path(__file__).resolve().parent.parent.parent
GORUN = ROOT / "bin" / "gorun"
RANKS = 4
WARM = 20  # steps before the first fault
LONGEST = 300  # seconds until a job must have begun


# What follows runs in each rank: losses.py --rank SYSTEM FOLDER STEP CHECKPOINT.


class Progress:
    """A file of a rank, to which it writes when each step ended."""

    def __init__(self, folder: str) -> None:
        self._file = open(os.path.join(folder, f"rank.{os.getpid()}"), "a", buffering=1)

    def step(self, number: int) -> None:
        """Note that a step has ended."""
        self._file.write(f"{time.time()} {number}\n")


def model_and_optimizer(torch: Any) -> tuple[Any, Any]:
    """Return what all systems train: 4 MB of weights."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 900))
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def backward(torch: Any, model: Any, seconds: float) -> None:
    """Take the time of a step, most of which a GPU would compute, and leave gradients behind."""
    time.sleep(seconds)
    model(torch.randn(16, 64)).square().mean().backward()


def by_gorun(folder: str, seconds: float, checkpoint: int) -> None:
    """Train with Horovod's elastic interface."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    model, optimizer = model_and_optimizer(torch)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    progress = Progress(folder)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while True:
            optimizer.zero_grad()
            backward(torch, model, seconds)
            optimizer.step()
            state.step += 1
            progress.step(state.step)
            if state.step % 10 == 0:
                state.commit()

    train(hvd.elastic.TorchState(model, optimizer, step=0))


def by_restarts(folder: str, seconds: float, checkpoint: int) -> None:
    """Train with DistributedDataParallel, from the last checkpoint on."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model, optimizer = model_and_optimizer(torch)
    path, step = os.path.join(folder, "checkpoint"), 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    progress = Progress(folder)
    while True:
        optimizer.zero_grad()
        backward(torch, parallel, seconds)
        optimizer.step()
        step += 1
        progress.step(step)
        if step % checkpoint == 0 and dist.get_rank() == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(saved, path + ".new")
            os.replace(path + ".new", path)


def by_torchft(folder: str, seconds: float, checkpoint: int) -> None:
    """Train with torchft's managed gradients and optimizer: a step that a loss interrupts is not counted."""
    from datetime import timedelta

    import torch
    import torchft

    model, optimizer = model_and_optimizer(torch)

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"group_{os.environ['REPLICA_GROUP_ID']}", timeout=timedelta(seconds=10),
    )  # fmt: skip
    parallel = torchft.DistributedDataParallel(manager, model)
    managed = torchft.Optimizer(manager, optimizer)
    progress = Progress(folder)
    while True:
        before = manager.current_step()
        managed.zero_grad()
        backward(torch, parallel, seconds)
        managed.step()
        if manager.current_step() > before:
            progress.step(manager.current_step())


PROGRAMS = {"gorun": by_gorun, "torchrun": by_restarts, "torchft": by_torchft, "ft_launcher": by_restarts}


# What follows measures.


def commands(system: str, python: str, rank: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """Return the commands that run a system, and what is added to their environments."""
    beside = Path(python).parent
    if system == "gorun":
        how = ["--min-np", str(RANKS - 1), "-np", str(RANKS), "--max-np", str(RANKS), "--spares", "1"]
        again = ["--blacklist-cooldown-range", "1", "2", "-H", f"localhost:{RANKS + 1}"]
        return [([str(GORUN), *how, *again, *rank], {})]
    launchers = {"ft_launcher": [str(beside / system)], "torchrun": [python, "-m", "torch.distributed.run"]}
    elastic = ["--nnodes", "1", "--max-restarts", "1000"]
    if system in ("torchrun", "ft_launcher"):
        port = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
        # In the store that agent and ranks share, restarted ranks find addresses of ended ones, and wait
        # for half an hour: pytorch/pytorch#135712.
        own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return [([*launchers[system], *elastic, *port, "--nproc-per-node", str(RANKS), *rank[1:]], own)]
    lighthouse = f"127.0.0.1:{free_port()}"
    served = [str(beside / "torchft_lighthouse"), "--min_replicas", "1", "--bind", lighthouse]
    all_groups: list[tuple[list[str], dict[str, str]]] = [(served, {})]
    for group in range(RANKS):
        how = [*elastic, "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
        where = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
        command = [*launchers["torchrun"], *how, *where, *rank[1:]]
        more = {"TORCHFT_LIGHTHOUSE": f"http://{lighthouse}", "REPLICA_GROUP_ID": str(group)}
        all_groups.append((command, more))
    return all_groups


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def started(system: str, python: str, rank: list[str], folder: str) -> Iterator[list[Any]]:
    """Run a system while the block runs, which gets its processes."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command, more in commands(system, python, rank):
            log = open(os.path.join(folder, f"log.{len(processes)}"), "w")
            environment = {**os.environ, **more}
            processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
            )
        yield processes
    finally:
        for number in signal.SIGTERM, signal.SIGKILL:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            time.sleep(running.GRACE if number == signal.SIGTERM else 0)
        for process in processes:
            process.wait()
        for pid in alive(folder):
            os.kill(pid, signal.SIGKILL)


def alive(folder: str) -> list[int]:
    """Return the ranks that have begun and not ended."""
    pids = [int(path.suffix[1:]) for path in Path(folder).glob("rank.*")]
    return [pid for pid in pids if state(pid) not in "ZX"]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def steps(folder: str) -> list[tuple[float, int]]:
    """Return when steps ended, in order of time."""
    ended = []
    for path in Path(folder).glob("rank.*"):
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                at, number = line.split()
                ended.append((float(at), int(number)))
    return sorted(ended)


def frontier(ended: list[tuple[float, int]], until: float) -> int:
    return max((number for at, number in ended if at <= until), default=0)


def measure(system: str, options: argparse.Namespace) -> str:
    """Return the row of a system."""
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        me = os.path.abspath(__file__)
        rank = [options.python, me, "--rank", system, folder, str(options.step), str(options.checkpoint)]
        with started(system, options.python, rank, folder) as processes:
            late = time.time() + LONGEST
            while frontier(steps(folder), time.time()) < WARM:
                if time.time() > late or any(process.poll() is not None for process in processes):
                    raise RuntimeError(f"{system} has not begun: {Path(folder, 'log.0').read_text()[-2000:]}")
                time.sleep(0.2)
            warm = [at for number in range(WARM // 2, WARM + 1) for at in [first(steps(folder), number)]]
            usual = (warm[-1] - warm[0]) / (len(warm) - 1)
            begin, kills = time.time(), []
            end = begin + 60 * options.minutes
            while time.time() < end - options.every / 2:
                time.sleep(min(options.every / 2 if not kills else options.every, end - time.time()))
                victims = alive(folder)
                if victims and time.time() < end:
                    kills.append(time.time())
                    os.kill(rng.choice(victims), signal.SIGKILL)
            time.sleep(max(0.0, end - time.time()))
            ended = steps(folder)
        if options.keep:
            shutil.copytree(folder, Path(options.keep) / system)
    made = frontier(ended, end) - frontier(ended, begin)
    pauses, repeated = [], 0
    for at in kills:
        reached = frontier(ended, at)
        new = next((t for t, number in ended if t > at and number > reached), end)
        pauses.append(new - at)
        repeated += len({number for t, number in ended if at + usual < t < new + usual and number <= reached})
    ettr = 100 * made * usual / (end - begin)
    pause = f"{statistics.median(pauses):.1f} s, {max(pauses):.1f} s" if pauses else "none"
    each = repeated / max(len(kills), 1)
    return f"| {system} | {ettr:.1f} % | {pause} | {each:.1f} | {1000 * usual:.0f} ms | {len(kills)} |"


def first(ended: list[tuple[float, int]], number: int) -> float:
    return min(at for at, n in ended if n >= number)


def missing(system: str, python: str) -> bool:
    """Report whether a system is not there."""
    modules = {"gorun": "torch", "torchrun": "torch.distributed.run", "torchft": "torchft"}
    module = modules.get(system, "nvidia_resiliency_ext")
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode != 0


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("systems", nargs="*", default=list(PROGRAMS), help="which of them, in this order")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--every", type=float, default=60, help="seconds between two faults")
    parser.add_argument("--step", type=float, default=0.1, help="seconds of a step's computation")
    parser.add_argument("--checkpoint", type=int, default=50, help="steps between checkpoints and commits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a folder for logs")
    options = parser.parse_args()
    print("| system | ETTR | pause after a fault: median, longest | steps repeated each | a step | faults |")
    print("|---|---|---|---|---|---|", flush=True)
    for system in options.systems:
        if missing(system, options.python):
            print(f"{system}: {options.python} does not have it", file=sys.stderr)
            continue
        print(measure(system, options), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        system, folder, seconds, checkpoint = sys.argv[2:]
        PROGRAMS[system](folder, float(seconds), int(checkpoint))
    else:
        running.guard(main)
