"""Run by every rank of a real job: the operations of gorun.jax, outside of jit and inside of it."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"

import jax
import jax.numpy as jnp
import numpy as np

import gorun.jax as hvd
from gorun.jax import compiled

hvd.init()
rank, size = hvd.rank(), hvd.size()
every = range(size)


def ranked(r, shape, dtype=jnp.float32):
    count = int(np.prod(shape))
    return jnp.asarray((np.arange(count) % 5 + 1 + r).reshape(shape), dtype)


def share(rows, r=rank):
    each, more = divmod(rows, size)
    start = r * each + min(r, more)
    return slice(start, start + each + (r < more))


def equal(got, want):
    got, want = np.asarray(got.astype(jnp.float32)), np.asarray(want, np.float32)
    assert got.shape == want.shape, (got.shape, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-2 if got.max(initial=0) > 100 else 1e-5)


both = (lambda function: function, jax.jit)  # at once, and compiled

# Every type and every reduction.
types = (jnp.uint8, jnp.int8, jnp.int32, jnp.uint32, jnp.float16, jnp.bfloat16, jnp.float32, jnp.complex64)
for dtype in types:
    want = sum(np.asarray(ranked(r, (3, 4), dtype).astype(jnp.complex64)) for r in every)
    for way in both:
        got = way(lambda x: hvd.allreduce(x, op=hvd.Sum))(ranked(rank, (3, 4), dtype))
        assert got.dtype == dtype
        np.testing.assert_allclose(np.asarray(got.astype(jnp.complex64)), want, rtol=1e-2)
ranks = [np.asarray(ranked(r, (7,)), np.float64) for r in every]
reductions = {
    hvd.Average: np.mean(ranks, 0), hvd.Sum: np.sum(ranks, 0), hvd.Min: np.min(ranks, 0),
    hvd.Max: np.max(ranks, 0), hvd.Product: np.prod(ranks, 0),
}  # fmt: skip
for op, want in reductions.items():
    for way in both:
        equal(way(lambda x, op=op: hvd.allreduce(x, op=op))(ranked(rank, (7,))), want)
bits = [np.asarray(ranked(r, (9,), jnp.int32)) for r in every]
for op, do in (hvd.BitAnd, np.bitwise_and), (hvd.BitOr, np.bitwise_or), (hvd.BitXor, np.bitwise_xor):
    equal(jax.jit(lambda x, op=op: hvd.allreduce(x, op=op))(ranked(rank, (9,), jnp.int32)), do.reduce(bits))
for way in both:
    scaled = way(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0))
    equal(scaled(ranked(rank, (7,))), 2 * np.sum(ranks, 0))
    equal(
        way(lambda x: hvd.allreduce(x, compression=hvd.Compression.bf16))(ranked(rank, (7,))),
        np.mean(ranks, 0),
    )
if size in (1, 2, 4):
    once = hvd.allreduce(ranked(rank, (6,)), op=hvd.Adasum)
    equal(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Adasum))(ranked(rank, (6,))), np.asarray(once))

# Trees, of several types; large arrays, in pieces that no array's end fits; empty ones, and numbers.
tree = {"a": ranked(rank, (2, 3)), "b": [ranked(rank, (5,), jnp.int32), jnp.float32(rank), jnp.zeros((0, 3))]}
for way in both:
    got = way(lambda x: hvd.allreduce(x, op=hvd.Sum))(tree)
    equal(got["a"], sum(np.asarray(ranked(r, (2, 3))) for r in every))
    equal(got["b"][0], sum(np.asarray(ranked(r, (5,))) for r in every))
    equal(got["b"][1], sum(every))
    assert got["b"][2].shape == (0, 3)
large = [jnp.arange(n, dtype=jnp.float32) % 1000 + rank for n in (3_000_001, 5, 2_500_003)]
for got, mine in zip(jax.jit(lambda x: hvd.grouped_allreduce(x, op=hvd.Sum))(large), large):
    assert bool((got == (mine - rank) * size + sum(every)).all())

# Results take the memory of their inputs, unless the program, or its caller, still needs them.
for do, want in (
    (lambda x: hvd.allreduce(x, op=hvd.Sum), sum), (lambda x: hvd.broadcast(x, 0), lambda r: r[0])
):
    mine, ours = ranked(rank, (7,)), want([np.asarray(ranked(r, (7,))) for r in every])
    got, doubled, kept = jax.jit(lambda x, do=do: (do(x + x), x + x, do(x)))(mine)
    equal(got, 2 * ours)
    equal(doubled, 2 * np.asarray(ranked(rank, (7,))))
    equal(kept, ours)
    equal(mine, np.asarray(ranked(rank, (7,))))
    equal(jax.jit(do, donate_argnums=0)(mine), ours)
    assert "output_to_operand_aliasing={{0}: (0, {})}" in jax.jit(do).lower(mine).compile().as_text()

# Rows.
rows = ranked(rank, (2 * size, 3))
for way in both:
    equal(way(hvd.allgather)(rows), np.concatenate([np.asarray(ranked(r, (2 * size, 3))) for r in every]))
    equal(way(lambda x: hvd.broadcast(x, size - 1))(rows), np.asarray(ranked(size - 1, (2 * size, 3))))
    mine = np.concatenate([np.asarray(ranked(r, (2 * size, 3)))[2 * rank :][:2] for r in every])
    equal(way(hvd.alltoall)(rows), mine)
    for n in (size, 2 * size + 1):
        total = sum(np.asarray(ranked(r, (n, 2))) for r in every)
        equal(way(lambda x: hvd.reducescatter(x, op=hvd.Sum))(ranked(rank, (n, 2))), total[share(n)])
    averages = np.mean([np.asarray(ranked(r, (size,))) for r in every], 0)
    equal(way(hvd.reducescatter)(ranked(rank, (size,))), averages[share(size)])
    first, second = way(hvd.grouped_allgather)([rows, rows[:1]])
    assert first.shape == (2 * size * size, 3) and second.shape == (size, 3)
uneven = hvd.allgather(jnp.full((rank + 1, 2), rank))  # outside of jit ranks may differ
equal(uneven, np.concatenate([np.full((r + 1, 2), r) for r in every]))
received, counts = hvd.alltoall(jnp.full((size,), rank), splits=[1] * size)
equal(received, list(every))
assert counts.tolist() == [1] * size

# Process sets, alike on all ranks and apart.
if size > 2:
    evens, odds = hvd.add_process_set(every[::2]), hvd.add_process_set(every[1::2])
    own = evens if rank % 2 == 0 else odds
    members = every[rank % 2 :: 2]
    for way in both:
        equal(
            way(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=own))(jnp.float32([rank])), [sum(members)]
        )
        equal(way(lambda x: hvd.allgather(x, process_set=own))(jnp.float32([rank])), list(members))
        equal(
            way(lambda x: hvd.broadcast(x, members[-1], process_set=own))(jnp.float32([rank])), [members[-1]]
        )
        total = way(lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=own))(jnp.ones((len(members), 2)))
        equal(total, np.full((1, 2), len(members)))

# Gradients, by compiled programs and without.
weight = rank + 1.0
mean = sum(r + 1.0 for r in every) / size
x = ranked(rank, (2 * size,))
gradients = {
    "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), np.full(2 * size, mean * size)),
    "average": (hvd.allreduce, np.full(2 * size, mean)),
    "scaled": (lambda x: hvd.allreduce(x, prescale_factor=3.0), np.full(2 * size, 3 * mean)),
    "broadcast": (lambda x: hvd.broadcast(x, 0), np.full(2 * size, mean if rank == 0 else 0.0)),
    "allgather": (hvd.allgather, np.full(2 * size, mean)),
    "alltoall": (hvd.alltoall, np.repeat([r + 1.0 for r in every], 2)),
    "reducescatter": (
        lambda x: hvd.reducescatter(x, op=hvd.Sum),
        size * np.repeat([r + 1.0 for r in every], 2),
    ),
}
for name, (operation, want) in gradients.items():
    for way in both:
        got = way(jax.grad(lambda x, operation=operation: jnp.sum(operation(x) * weight)))(x)
        assert np.allclose(got, want), (name, got, want)
try:
    jax.jit(jax.grad(lambda x: jnp.sum(hvd.allreduce(x, op=hvd.Max))))(x)
    raise SystemExit("a maximum has a gradient")
except NotImplementedError:
    pass

# Forward mode, and second derivatives both ways: every operation but a maximum and the like is linear.
for name, (operation, _) in gradients.items():
    for way in both:
        got = way(lambda x, operation=operation: jax.jvp(operation, (x,), (2 * x,)))(x)
        assert np.allclose(got[1], 2 * np.asarray(operation(x))) and np.allclose(2 * got[0], got[1]), name
sums = np.sum([np.asarray(ranked(r, (2 * size,))) for r in every], 0)


def steep(x):
    return jnp.sum(jnp.square(hvd.allreduce(x, op=hvd.Sum)))


for way in both:
    equal(way(jax.grad(steep))(x), 2 * size * sums)
    equal(way(lambda x: jax.jvp(jax.grad(steep), (x,), (x,))[1])(x), 2 * size * sums)
    equal(way(jax.grad(lambda x: jnp.sum(jax.grad(steep)(x))))(x), np.full(2 * size, 2 * size**2))
    equal(way(jax.vmap(jax.grad(steep)))(jnp.stack([x, 3 * x])), np.outer([1, 3], 2 * size * sums))
    equal(way(jax.grad(lambda x: jnp.sum(jax.vmap(steep)(x))))(jnp.stack([x])), [2 * size * sums])

# Batches, loops, branches and recomputation.
batch = jnp.stack([x, 2 * x, 3 * x])
for way in both:
    counts = jnp.arange(6).reshape(2, 3)
    equal(way(jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Sum)))(counts), size * np.arange(6).reshape(2, 3))
    equal(way(jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Sum)))(batch), np.outer([1, 2, 3], sums))
    assert way(jax.vmap(hvd.allgather))(batch).shape == (3, 2 * size * size)
    assert way(jax.vmap(hvd.reducescatter))(batch).shape == (3, 2)
    try:
        way(jax.vmap(hvd.allgather))(x)  # of elements, which have no rows
    except IndexError:
        continue
    raise AssertionError("gathered what has no first dimension")
loop = jax.jit(
    lambda x: jax.lax.scan(lambda c, _: (hvd.allreduce(c, op=hvd.Max), None), x, None, length=9)[0]
)
equal(loop(x), np.asarray(ranked(size - 1, (2 * size,))))
branch = jax.jit(lambda x: jax.lax.cond(x[0] > 0, lambda x: hvd.allreduce(x, op=hvd.Sum), lambda x: x, x))
equal(branch(x), sums)
again = jax.jit(jax.grad(jax.checkpoint(lambda x: jnp.sum(jnp.square(hvd.allreduce(x, op=hvd.Sum))))))
equal(again(x), 2 * size * sums)


# Many at once, more than XLA has threads; and one program again before it has ended.
@jax.jit
def many(x):
    return jnp.stack([jnp.max(hvd.allreduce(x * (i + 1), op=hvd.Sum, name=f"many.{i}")) for i in range(100)])


equal(many(jnp.ones(10_000)), np.arange(1.0, 101.0) * size)
add = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="again"))
for i, got in enumerate([add(jnp.full(3, float(i))) for i in range(100)]):
    equal(got, np.full(3, float(i) * size))

# Mistakes are errors of all ranks, and later operations work.
if size > 1:
    for wrong in (lambda x: hvd.allreduce(x, name="wrong"), lambda x: hvd.allgather(x, name="wrong rows")):
        try:
            jax.jit(wrong)(jnp.ones((2 + rank, 1))).block_until_ready()
            raise SystemExit("ranks with different arrays were not noticed")
        except Exception as error:
            failure = compiled.failure_of(error)
            assert isinstance(failure, hvd.HorovodInternalError) and "wrong" in str(failure), error
for wrong in (
    lambda: jax.jit(lambda x: hvd.alltoall(x, splits=[1] * size))(jnp.ones(size)),
    lambda: jax.jit(hvd.alltoall)(jnp.ones(2 * size + 1)) if size > 1 else hvd.broadcast(x, 1),
    lambda: jax.jit(hvd.reducescatter)(jnp.ones((size - 1, 1))),
    lambda: hvd.broadcast(x, size),
):
    try:
        wrong()
        raise SystemExit("a mistake was not noticed")
    except ValueError:
        pass
equal(add(jnp.ones(3)), np.full(3, float(size)))

# The same by callbacks, as on other devices.
compiled._call_native = compiled._call_back
jax.clear_caches()
equal(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(x), sums)
equal(jax.jit(hvd.allgather)(rows), np.concatenate([np.asarray(ranked(r, (2 * size, 3))) for r in every]))
got = jax.jit(jax.grad(lambda x: jnp.sum(hvd.allreduce(x) * weight)))(x)
assert np.allclose(got, np.full(2 * size, mean))

hvd.barrier()
print(f"rank {rank} of {size}: all operations are right")
