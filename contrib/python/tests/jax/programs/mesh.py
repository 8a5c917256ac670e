"""A program of JAX alone, one process for each rank: every kind of collective that XLA puts into programs."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map

jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
assert (rank, size) == (int(os.environ["GORUN_RANK"]), int(os.environ["GORUN_SIZE"]))
mesh = Mesh(np.array(jax.devices()), ("rank",))
BY_RANK = PartitionSpec("rank")
rows, whole = NamedSharding(mesh, BY_RANK), NamedSharding(mesh, PartitionSpec())


def spread(mine):
    return jax.make_array_from_process_local_data(rows, mine, (size * mine.shape[0], *mine.shape[1:]))


def here(array):
    return np.asarray(array.addressable_data(0))


def mapped(function, out=BY_RANK):
    return jax.jit(shard_map(function, mesh=mesh, in_specs=BY_RANK, out_specs=out))


def value(r, dtype=np.float32):
    return (np.arange(2 * size * 3).reshape(2 * size, 3) % 7 + r).astype(dtype)


every = range(size)
for dtype in (np.float32, np.int32, np.uint8, np.complex64):
    total = mapped(lambda x: jax.lax.psum(x, "rank"), PartitionSpec())(spread(value(rank, dtype)))
    np.testing.assert_array_equal(here(total), sum(value(r, dtype) for r in every))
x = spread(value(rank))
np.testing.assert_array_equal(
    here(jax.jit(jnp.sum, out_shardings=whole)(x)), sum(value(r).sum() for r in every)
)
np.testing.assert_array_equal(
    here(mapped(lambda x: jax.lax.pmax(x, "rank"), PartitionSpec())(x)), value(size - 1)
)
gathered = jax.jit(lambda x: x * 1, out_shardings=whole)(x)
np.testing.assert_array_equal(here(gathered), np.concatenate([value(r) for r in every]))
exchanged = mapped(lambda x: jax.lax.all_to_all(x, "rank", 0, 0, tiled=True))(x)
np.testing.assert_array_equal(here(exchanged), np.concatenate([value(r)[2 * rank :][:2] for r in every]))
scattered = mapped(lambda x: jax.lax.psum_scatter(x, "rank", scatter_dimension=0, tiled=True))(x)
np.testing.assert_array_equal(here(scattered), sum(value(r) for r in every)[2 * rank :][:2])
ring = [(r, (r + 1) % size) for r in every]
passed = mapped(lambda x: jax.lax.ppermute(x, "rank", ring))(x)
np.testing.assert_array_equal(here(passed), value((rank - 1) % size))

# In pieces, and along the axes of a mesh whose devices are in another order than the ranks.
large = spread(np.full((1, 5_000_003), rank + 1.0, np.float32))
np.testing.assert_array_equal(
    here(mapped(lambda x: jax.lax.psum(x, "rank"), PartitionSpec())(large)), sum(every) + size
)
if size == 4:
    grid = Mesh(np.array(jax.devices())[[3, 1, 0, 2]].reshape(2, 2), ("a", "b"))
    spec = PartitionSpec("a", "b")
    mine = np.full((1, 1), 10.0**rank, np.float32)
    four = jax.make_array_from_process_local_data(NamedSharding(grid, spec), mine, (2, 2))
    for axis, pairs in ("a", {3: 0, 0: 3, 1: 2, 2: 1}), ("b", {3: 1, 1: 3, 0: 2, 2: 0}):
        out = PartitionSpec(None, "b") if axis == "a" else PartitionSpec("a", None)
        add = jax.jit(
            shard_map(lambda x, axis=axis: jax.lax.psum(x, axis), mesh=grid, in_specs=spec, out_specs=out)
        )
        np.testing.assert_array_equal(here(add(four)), 10.0**rank + 10.0 ** pairs[rank])
        order = jax.jit(
            shard_map(lambda x, axis=axis: jax.lax.all_gather(x, axis, axis=1, tiled=True), mesh=grid,
                      in_specs=spec, out_specs=spec)
        )  # fmt: skip
        a, b = divmod([3, 1, 0, 2].index(rank), 2)
        line = [[3, 1], [0, 2]][a] if axis == "b" else [[3, 0], [1, 2]][b]
        np.testing.assert_array_equal(here(order(four)).ravel(), [10.0**r for r in line])

weight = jax.device_put(np.ones((3, 8), np.float32), whole)
step = jax.jit(
    lambda w, x: w - 0.01 * jax.grad(lambda w: jnp.mean(jnp.square(x @ w)))(w), out_shardings=whole
)
for _ in range(5):
    weight = step(weight, x)
print(f"rank {rank} of {size}: trained to {float(jnp.sum(weight.addressable_data(0))):.4f}")
