"""A program that forks while a step runs, as loaders of data do: by gorun.jax, or by JAX alone (--mesh)."""

import multiprocessing
import os
import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import gorun.jax as hvd

STEPS, CHILDREN, WITHIN = 40, 6, 120  # seconds
rank, size = int(os.environ["GORUN_RANK"]), int(os.environ["GORUN_SIZE"])
alone = "--mesh" in sys.argv
warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX's: it has threads


def gradient(weight, target):
    return jax.grad(lambda w: jnp.mean(jnp.sum(jnp.square(w - target), axis=1)))(weight)


if alone:
    jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()), ("rank",))
    rows, whole = NamedSharding(mesh, PartitionSpec("rank")), NamedSharding(mesh, PartitionSpec())
    mine = np.full((1, 1000), 1.0 + rank, np.float32)
    target = jax.make_array_from_process_local_data(rows, mine, (size, 1000))
    weight = jax.device_put(np.zeros(1000, np.float32), whole)
    step = jax.jit(lambda w, t: w - 0.1 * gradient(w, t), out_shardings=whole)
else:
    hvd.init()
    target = jnp.full((1, 1000), 1.0 + rank)
    weight = jnp.zeros(1000)
    step = jax.jit(lambda w, t: w - 0.1 * hvd.reduce_gradients(gradient(w, t)))


def refused(function, *args):
    try:
        function(*args)
    except ValueError:
        return True
    return False


def prepared(number):
    """Prepare a batch, in a process of the pool."""
    assert not hvd.is_initialized() and refused(hvd.rank) and refused(hvd.allreduce, np.ones(3))
    return np.full(1000, number)


def train():
    global weight
    for _ in range(STEPS):
        weight = step(weight, target)
        jax.block_until_ready(weight)


# What children of a running program try is refused, and no step notices them.
trainer = threading.Thread(target=train)
trainer.start()
for _ in range(CHILDREN):
    pid = os.fork()
    if pid == 0:
        good = not hvd.is_initialized() and refused(hvd.size) and refused(hvd.allreduce, np.ones(3))
        os._exit(not good)  # JAX's own handlers hang in a child that ends by sys.exit()
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status
pool = multiprocessing.get_context("fork").Pool(2)
batches = pool.map_async(prepared, range(8)).get(WITHIN)
pool.close()  # terminate() would wait for ever: jax.distributed catches SIGTERM, in a child too
pool.join()
trainer.join()
assert [batch[0] for batch in batches] == list(range(8))
mean = (size + 1) / 2
got = weight.addressable_data(0) if alone else weight
np.testing.assert_allclose(got, mean * (1 - 0.8**STEPS), rtol=1e-4)
print(f"rank {rank} of {size}: ok")
