#!/usr/bin/env python3
"""Measures JAX's collectives between two ranks of this host: gorun.jax, JAX's own programs on gorun's engine
(--jax-engine gorun), and on gloo; and a step of ResNet-50's 161 gradients by gorun.jax, .tensorflow and
.torch, and by stock Horovod for torch and for TensorFlow. Beside it stands the same step of a rank alone.

    python3 contrib/bench/jax_ranks.py --python venv/bin/python --torch /usr/bin/python3

--python has JAX, --tensorflow TensorFlow, --torch torch, --stock a built Horovod for torch,
--stock-tensorflow one for TensorFlow. The programs take turns, --rounds times each. A time is the median
of a program's operations on its slower rank, and the table shows the median over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import running

HERE = Path(__file__).resolve().parent
BINARY = HERE.parent.parent / "bin" / "gorun"
MIB = 1 << 20
STEP_BYTES = 102_228_128  # of ResNet-50's gradients
TIMEOUT = 120  # seconds, of one program

OURS, ENGINE, GLOO, TORCH = "gorun.jax", "--jax-engine gorun", "gloo", "gorun.torch"
TENSORFLOW, STOCK = "gorun.tensorflow", "stock Horovod, torch"
STOCK_TENSORFLOW = "stock Horovod, TensorFlow"
STEPS = {"step": "ResNet-50's gradients", "alone": "of it without other ranks"}


def resnet50() -> list[tuple[int, ...]]:
    """Return the shapes of the 161 parameters of ResNet-50, 25,557,032 numbers (He et al. 2015, table 1)."""
    shapes: list[tuple[int, ...]] = []

    def convolution(out: int, into: int, kernel: int) -> None:
        shapes.extend([(kernel, kernel, into, out), (out,), (out,)])  # and its batch normalisation

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
    return [*shapes, (into, 1000), (1000,)]


def median(run: Callable[[], Any], size: int) -> float:
    """Return the median time of an operation in milliseconds: of as many on every rank."""
    times: list[float] = []
    for _ in range(3 + max(9, min(200, 256 * MIB // size))):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times[3:]) * 1e3


def rank_of_ours(sizes: list[int]) -> dict[str, float]:
    import gorun.jax as hvd
    import jax
    import jax.numpy as jnp

    hvd.init()
    times = {}
    for size in sizes:
        array = jnp.full(size // 4, 1.0 + hvd.rank(), jnp.float32)
        total = jax.jit(lambda x, size=size: hvd.allreduce(x, op=hvd.Sum, name=f"bench.{size}"))
        check(total(array), hvd.size() * (hvd.size() + 1) / 2)
        times[str(size)] = median(lambda total=total, array=array: total(array).block_until_ready(), size)
    weights = [jnp.zeros(shape, jnp.float32) for shape in resnet50()]
    factors = jnp.asarray(factors_of(hvd.rank(), len(weights)), jnp.float32)

    def loss(weights: list[Any], factors: Any) -> Any:
        return sum(jnp.sum(weight) * factors[i] for i, weight in enumerate(weights))

    for name, gradient in (("alone", jax.value_and_grad(loss)), ("step", hvd.value_and_grad(loss))):
        step = jax.jit(gradient)
        check_step(step(weights, factors)[1], hvd, name)
        times[name] = median(lambda step=step: jax.block_until_ready(step(weights, factors)), STEP_BYTES)
    return times


def rank_of_tensorflow(sizes: list[int]) -> dict[str, float]:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    weights = [tf.Variable(tf.zeros(shape)) for shape in resnet50()]
    factors = tf.constant(factors_of(hvd.rank(), len(weights)))
    times = {}
    for name in ("alone", "step"):

        @tf.function
        def step(factors: Any, name: str = name) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(weight) * factors[i] for i, weight in enumerate(weights)])
            tape = hvd.DistributedGradientTape(tape) if name == "step" else tape
            return tape.gradient(loss, weights)

        check_step([gradient.numpy() for gradient in step(factors)], hvd, name)
        times[name] = median(lambda step=step: step(factors), STEP_BYTES)
    return times


def factors_of(rank: int, count: int) -> list[float]:
    """Return the gradient of each weight: all differ, so that no framework computes one for several."""
    return [1.0 + rank + i for i in range(count)]


def check_step(gradients: list[Any], hvd: Any, name: str) -> None:
    first = (hvd.size() + 1) / 2 if name == "step" else 1.0 + hvd.rank()
    for i, gradient in enumerate(gradients):
        check(gradient, first + i)


def rank_of_jax(sizes: list[int]) -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
    )
    ranks = jax.process_count()
    mesh = Mesh(np.array(jax.devices()), ("rank",))
    rows, whole = NamedSharding(mesh, PartitionSpec("rank")), NamedSharding(mesh, PartitionSpec())
    times = {}
    for size in sizes:
        mine = np.full((1, size // 4), 1.0 + jax.process_index(), np.float32)
        array = jax.make_array_from_process_local_data(rows, mine, (ranks, size // 4))
        total = jax.jit(lambda x: jnp.sum(x, axis=0), out_shardings=whole)
        check(total(array).addressable_data(0), ranks * (ranks + 1) / 2)
        times[str(size)] = median(lambda total=total, array=array: total(array).block_until_ready(), size)
    return times


def check(array: Any, want: float) -> None:
    if array.reshape(-1)[-1] != want or array.reshape(-1)[0] != want:
        sys.exit(f"wrong result: {array}, want {want}")


def run(library: str, args: argparse.Namespace) -> dict[str, float]:
    """Return the times of a program, by size."""
    command = [str(BINARY), "-np", "2", "--no-tag-output", "-x", "JAX_PLATFORMS=cpu"]
    stock = {STOCK: args.stock, STOCK_TENSORFLOW: args.stock_tensorflow}.get(library)
    if stock:
        command = [str(Path(stock).with_name("horovodrun")), "-np", "2", stock, "-B"]
    if library == STOCK:
        command += [str(HERE / "horovod_torch.py"), "--sizes", "step"]
    elif library == STOCK_TENSORFLOW:
        command += [__file__, "--rank", library]
    elif library == TORCH:
        command += [args.torch, str(HERE / "horovod_torch.py"), "--sizes", "step"]
    else:
        command += ["--jax-engine", "gorun"] * (library == ENGINE)
        command += ["-x", "JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo"] * (library == GLOO)
        python = args.tensorflow if library == TENSORFLOW else args.python
        command += [python, "-B", __file__, "--rank", library, "--sizes", *map(str, args.sizes)]
    status, out, errors = running.run(command, TIMEOUT, HERE)
    if status:
        sys.exit(f"{library}: status {status}\n{out}{errors}")
    found = [json.loads(line[line.index("{") :]) for line in out.splitlines() if "{" in line]
    if library in (TORCH, STOCK):
        return dict(zip(STEPS, (row["p50_us"] / 1e3 for row in found[0]["rows"])))
    return {size: max(times[size] for times in found) for size in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--python", default=sys.executable, help="a Python with JAX")
    parser.add_argument(
        "--torch", default="", help="a Python with torch, for the step; without it there is none"
    )
    parser.add_argument("--without-jax", action="store_true", help="measure only the others")
    parser.add_argument("--tensorflow", default="", help="a Python with TensorFlow, for the step")
    parser.add_argument("--stock", default="", help="a Python with stock Horovod for torch, for the step")
    parser.add_argument("--stock-tensorflow", default="", help="one with stock Horovod for TensorFlow")
    parser.add_argument("--sizes", type=int, nargs="+", default=[MIB, 4 * MIB, 16 * MIB, 64 * MIB])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        programs = {OURS: rank_of_ours, TENSORFLOW: rank_of_tensorflow, STOCK_TENSORFLOW: rank_of_tensorflow}
        times = programs.get(args.rank, rank_of_jax)(args.sizes)
        print(json.dumps(times), flush=True)
        return
    running.end_on_signals()
    optional = {TENSORFLOW: args.tensorflow, TORCH: args.torch, STOCK: args.stock}
    optional[STOCK_TENSORFLOW] = args.stock_tensorflow
    libraries = [] if args.without_jax else [OURS, ENGINE, GLOO]
    libraries += [name for name, python in optional.items() if python]
    rounds = [{library: run(library, args) for library in libraries} for _ in range(args.rounds)]
    print(f"| two ranks, one host, ms | {' | '.join(libraries)} |\n|---|{'---:|' * len(libraries)}")
    for size in [*map(str, args.sizes), *STEPS]:
        cells = []
        for library in libraries:
            times = [one[library][size] for one in rounds if size in one[library]]
            cells.append(f"{statistics.median(times):.2f}" if times else "")
        if not any(cells):
            continue
        title = STEPS.get(size) or f"allreduce of {int(size) / MIB:g} MiB"
        print(f"| {title} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
