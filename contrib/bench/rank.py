"""The measurements of one Python rank, with any library.

The rules are those of `gorun bench`: float32, sums, every operation timed by itself on every rank, back to
back, and counted as long as it took on the slowest rank. A size is that of a rank's tensor, or of the result
of an allgather or gather. Results are checked before and after the clock runs. Rank 0 prints the document
of `gorun bench --json`, as far as libraries are compared by it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

from programs import OVERLAP_ROWS

WARM_UP, MIN_ITERS, MAX_ITERS = 5, 5, 20_000
LONG_ENOUGH = 0.1  # seconds, to count CPU time in hundredths
MANY = 1000  # tensors of one number
ALONE = "of it the model alone"  # the size of a row with the step of a model without a library
# The sizes of rows of a model whose backward waits, as for an accelerator, and of one that does not.
WAITING, WAITING_ALONE, STEP, STEP_ALONE = OVERLAP_ROWS
PAUSE = 0.0005  # seconds for which backward of one parameter waits: 80 ms for ResNet-50
LAYER = 10  # parameters of one layer of Model, which FSDP shards together
OWN = "own cost of each"  # the size of a row with the library's own time for one of them
PERIOD = 7  # of the test data


class Ranks:
    """A library: sum and largest reduce a tensor in place, barrier waits for all ranks.

    start begins a sum under a name and returns what waits for it; group returns what sums up tensors at once.
    """

    rank: int
    size: int

    def collective(self, name: str, data: torch.Tensor, result: torch.Tensor) -> Callable[[], object] | None:
        """Return a function that runs an operation other than allreduce, from data to result."""
        return None

    def sum(self, tensor: torch.Tensor) -> None:
        raise NotImplementedError

    def start(self, tensor: torch.Tensor, name: str) -> Callable[[], object]:
        raise NotImplementedError

    def group(self, tensors: list[torch.Tensor]) -> Callable[[], object]:
        raise NotImplementedError

    def largest(self, tensor: torch.Tensor) -> None:
        raise NotImplementedError

    def barrier(self) -> None:
        raise NotImplementedError


def timed(ranks: Ranks, operation: Callable[[], object], iters: int) -> torch.Tensor:
    """Seconds of each operation on the slowest rank."""
    times = [0.0] * iters
    ranks.barrier()
    last = time.perf_counter()
    for i in range(iters):
        operation()
        now = time.perf_counter()
        times[i] = now - last
        last = now
    slowest = torch.tensor(times, dtype=torch.float64)
    ranks.largest(slowest)
    return slowest


def busy() -> float:
    """Seconds for which the CPUs of this machine have worked, all together.

    That is what a program and its daemons take, on all lab hosts, if nothing else runs.
    """
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def row(
    ranks: Ranks, operation: Callable[[], object], size: int, seconds: float, wrong: Callable[[], int]
) -> dict:
    bad = wrong()
    trial = timed(ranks, operation, WARM_UP)[1:].mean().item()
    iters = min(max(math.ceil(seconds / trial), MIN_ITERS), MAX_ITERS)
    began, wall = busy(), time.perf_counter()
    slowest = timed(ranks, operation, iters)
    cpu, wall = (busy() - began) / iters, time.perf_counter() - wall
    times = sorted((slowest * 1e6).tolist())
    total = torch.tensor([float(bad + wrong())], dtype=torch.float64)
    ranks.largest(total)
    measured = {
        "size": size,
        "iterations": iters,
        "p50_us": statistics.median(times),
        "p99_us": times[math.ceil(0.99 * iters) - 1],
        "wrong": int(total.item()),
    }
    return {**measured, "cpu_us": cpu * 1e6} if wall >= LONG_ENOUGH else measured


def allreduce(ranks: Ranks, size: int, seconds: float) -> dict:
    tensor = torch.zeros(max(1, size // 4))
    place = torch.arange(PERIOD, dtype=torch.float32).repeat(tensor.numel() // PERIOD + 1)[: tensor.numel()]

    def wrong() -> int:
        torch.mul(place, ranks.rank + 1, out=tensor)
        ranks.sum(tensor)
        bad = int((tensor != place * (ranks.size * (ranks.size + 1) // 2)).sum())
        tensor.zero_()  # stays zero, however often it is summed up
        return bad

    return row(ranks, lambda: ranks.sum(tensor), 4 * tensor.numel(), seconds, wrong)


def many(ranks: Ranks, seconds: float) -> list[dict]:
    """Sum up many tensors of one number: all begun, then waited for; as a group; and one by one.

    A time is for all of them together.
    """
    tensors = [torch.zeros(1) for _ in range(MANY)]

    def at_once() -> None:
        for wait in [ranks.start(tensor, f"bench.many.{i}") for i, tensor in enumerate(tensors)]:
            wait()

    def one_by_one() -> None:
        for tensor in tensors:
            ranks.sum(tensor)

    # The columns of the first have the width of the C programs' output.
    ways = {4 * MANY: at_once, "as a group": ranks.group(tensors), "one by one": one_by_one}
    return [many_by(ranks, tensors, run, seconds) | {"size": size} for size, run in ways.items()]


def many_by(ranks: Ranks, tensors: list[torch.Tensor], run: Callable[[], object], seconds: float) -> dict:
    """Measure run, which sums the tensors up."""

    def wrong() -> int:
        for i, tensor in enumerate(tensors):
            tensor.fill_(i % PERIOD * (ranks.rank + 1))
        run()
        total = ranks.size * (ranks.size + 1) // 2
        bad = sum(tensor.item() != i % PERIOD * total for i, tensor in enumerate(tensors))
        for tensor in tensors:
            tensor.zero_()  # stays zero, however often it is summed up
        return bad

    return row(ranks, run, 4 * MANY, seconds, wrong)


def value(rank: int, places: torch.Tensor) -> torch.Tensor:
    """A rank's contribution at some places."""
    return ((places % PERIOD) * (rank + 1)).float()


def expected(ranks: Ranks, name: str, n: int) -> torch.Tensor:
    """The result at this rank when every rank contributes n numbers."""
    share, places = n // ranks.size, torch.arange(n)
    part = places[ranks.rank * share :][:share]
    if name == "allgather" or name == "gather" and ranks.rank == 0:
        return torch.cat([value(r, places) for r in range(ranks.size)])
    if name == "alltoall":
        return torch.cat([value(r, part) for r in range(ranks.size)])
    if name == "broadcast":
        return value(0, places)
    if name == "reduce" and ranks.rank == 0:
        return sum((value(r, places) for r in range(ranks.size)), torch.zeros(n))
    if name == "reducescatter":
        return sum((value(r, part) for r in range(ranks.size)), torch.zeros(share))
    if name == "scatter":
        return value(0, part)
    if name == "sendrecv":
        return value((ranks.rank - 1) % ranks.size, places)
    return torch.zeros(0)


def collective(ranks: Ranks, name: str, size: int, seconds: float) -> dict:
    """Measure an operation other than allreduce."""
    parts = ranks.size if name in ("allgather", "gather") else 1
    n = max(1, size // 4 // parts) if name != "barrier" else 0
    data = torch.zeros(n)
    result = data if name == "broadcast" else torch.zeros(len(expected(ranks, name, n)))
    run = ranks.collective(name, data, result)
    if run is None:
        raise RuntimeError(f"it has no {name}")

    def wrong() -> int:
        data.copy_(value(ranks.rank, torch.arange(n)))
        run()
        want = expected(ranks, name, n)
        bad = int((result[: len(want)] != want).sum())
        data.zero_()  # stays zero, however often it is summed up
        return bad

    return row(ranks, run, 4 * n * parts, seconds, wrong)


def resnet50() -> list[torch.nn.Parameter]:
    """The 161 parameters of ResNet-50, 25,557,032 numbers, in their order (He et al. 2015, table 1)."""
    shapes: list[tuple[int, ...]] = []

    def convolution(out: int, into: int, kernel: int) -> None:
        shapes.extend([(out, into, kernel, kernel), (out,), (out,)])  # and its batch normalisation

    convolution(64, 3, 7)
    into = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            convolution(width, into, 1)
            convolution(width, width, 3)
            convolution(4 * width, width, 1)
            if block == 0:
                convolution(4 * width, into, 1)
            into = 4 * width
    shapes.extend([(1000, into), (1000,)])
    return [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]


class Wait(torch.autograd.Function):
    """The same number; backward waits, as for an accelerator that computes meanwhile."""

    @staticmethod
    def forward(context: Any, number: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds
        return number.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(context.seconds)
        return gradient, None


class Layer(torch.nn.Module):
    """Adds the weighted sum of its parameters to a number."""

    def __init__(self, factor: float, weights: list[torch.nn.Parameter], pause: float) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(weights)
        self.factor, self.pause = factor, pause

    def forward(self, total: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            total = total + weight.sum() * self.factor
            if self.pause:
                total = Wait.apply(total, self.pause)
        return total


class Model(torch.nn.Module):
    """Gradients of parameters, and next to no arithmetic: each gradient is its rank's number plus one.

    Backward waits for pause seconds before each parameter.
    """

    def __init__(self, rank: int, weights: list[torch.nn.Parameter], pause: float = 0.0) -> None:
        super().__init__()
        parts = [weights[i : i + LAYER] for i in range(0, len(weights), LAYER)]
        self.layers = torch.nn.ModuleList(Layer(float(rank + 1), part, pause) for part in parts)

    def clear(self) -> None:
        """Set all gradients to zero, where they are."""
        with torch.no_grad():
            for weight in self.parameters():
                if weight.grad is not None:
                    weight.grad.zero_()

    def forward(self) -> torch.Tensor:
        total = torch.zeros(())
        for layer in self.layers:
            total = layer(total)
        return total


def step(ranks: Ranks, model: Model, backward: Callable[[], None], seconds: float) -> dict:
    """A step: backward, until every gradient is the mean over all ranks."""
    mean = (ranks.size + 1) / 2

    def wrong() -> int:
        backward()
        grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
        # What this rank has of it, where FSDP shards it.
        return sum(int((getattr(grad, "_local_tensor", grad) != mean).sum()) for grad in grads)

    size = 4 * sum(weight.numel() for weight in model.parameters())
    return row(ranks, backward, size, seconds, wrong)


def alone(ranks: Ranks, seconds: float, pause: float = 0.0) -> dict:
    """The same step without the library: what is not communication, while all ranks compute."""
    plain = Model(ranks.rank, resnet50(), pause)

    def backward() -> None:
        plain.clear()
        plain().backward()

    return {**row(ranks, backward, 0, seconds, lambda: 0), "size": ALONE}


def overlap(ranks: Ranks, model_of: Callable[[Model], Callable[[], None]], seconds: float) -> list[dict]:
    """Steps whose backward waits, and steps with nothing to wait for, with the library and without.

    What the library adds to the second is communication; what it adds to the first is the part that shows.
    """
    rows = []
    for pause, name, name_alone in (PAUSE, WAITING, WAITING_ALONE), (0.0, STEP, STEP_ALONE):
        model = Model(ranks.rank, resnet50(), pause)
        rows += [
            {**step(ranks, model, model_of(model), seconds), "size": name},
            {**alone(ranks, seconds, pause), "size": name_alone},
        ]
    return rows


def many_gradients(
    ranks: Ranks, model_of: Callable[[Model], Callable[[], None]], seconds: float
) -> list[dict]:
    """A step with many parameters of one number, and what of it the library costs for each of them: what the
    step takes longer than one of the same process that reduces nothing, just before it.
    """

    def model() -> Model:
        return Model(ranks.rank, [torch.nn.Parameter(torch.zeros(1)) for _ in range(MANY)])

    plain, parallel = model(), model()
    backward = model_of(parallel)

    def alone() -> None:
        plain.clear()
        plain().backward()

    def longer() -> float:
        times = []
        for run in alone, backward:
            ranks.barrier()
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        return times[1] - times[0]

    whole = step(ranks, parallel, backward, seconds)
    own = statistics.median(longer() for _ in range(whole["iterations"])) * 1e6 / MANY
    slowest = torch.tensor([own], dtype=torch.float64)
    ranks.largest(slowest)
    return [whole, {"size": OWN, "iterations": whole["iterations"], "p50_us": slowest.item(), "wrong": 0}]


def main(ranks: Ranks, model_of: Callable[[Model], Callable[[], None]]) -> None:
    """model_of returns a function that runs backward on a model and waits for the gradients."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--sizes",
        default="4,65536,1048576",
        help=f"bytes, separated by commas; step for a step of ResNet-50, many for {MANY} sums at once, "
        f"many-gradients for a step with {MANY} parameters of a number each, and its cost without the rest, "
        "overlap for steps whose backward waits",
    )
    parser.add_argument("--min-time", type=float, default=0.5, help="seconds of each size")
    parser.add_argument("--operation", default="allreduce")
    args = parser.parse_args()
    sizes = args.sizes.split(",")
    if args.sizes == "step":
        model = Model(ranks.rank, resnet50())
        rows = [step(ranks, model, model_of(model), args.min_time), alone(ranks, args.min_time)]
    elif args.sizes == "overlap":
        rows = overlap(ranks, model_of, args.min_time)
    elif args.sizes == "many-gradients":
        rows = many_gradients(ranks, model_of, args.min_time)
    elif args.sizes == "many":
        rows = many(ranks, args.min_time)
    elif args.operation == "allreduce":
        rows = [allreduce(ranks, int(size), args.min_time) for size in sizes]
    else:
        try:
            rows = [collective(ranks, args.operation, int(size), args.min_time) for size in sizes]
        except RuntimeError as e:
            if ranks.rank == 0:
                print(json.dumps({"why": str(e).splitlines()[0]}), flush=True)
            sys.exit(1)
    if ranks.rank == 0:
        print(json.dumps({"operation": args.operation, "ranks": ranks.size, "rows": rows}), flush=True)
    ranks.barrier()
