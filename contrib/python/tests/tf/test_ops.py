"""Run by every rank of a real job: the collectives for TensorFlow, eagerly and in graphs.

Exits non-zero if one of them is wrong.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from gorun.tensorflow import engine

tf.get_logger().setLevel("ERROR")
hvd.init()
rank, size = hvd.rank(), hvd.size()
assert engine.current() is engine.current()
TYPES = "uint8 int8 uint16 int16 int32 int64 uint32 uint64 float16 bfloat16 float32 float64".split()


def rows(r, n, dtype=tf.float32):
    return tf.cast(tf.reshape(tf.range(n * 3) % 5 + r, [n, 3]), dtype)


def both(function, *args):
    """Call a function eagerly and as a graph, and return both results."""
    return function(*args), tf.function(function)(*args)


def same(got, want, what=None):
    assert got.dtype == want.dtype and np.array_equal(got.numpy(), want.numpy()), (what, got, want)


# The operations.
for name in TYPES:
    dtype = tf.dtypes.as_dtype(name)
    for n in (0, 1, 7):
        want = tf.cast(sum(tf.cast(rows(r, n), tf.float64) for r in range(size)), dtype)
        for got in both(lambda x: hvd.allreduce(x, op=hvd.Sum), rows(rank, n, dtype)):
            same(got, want, (name, n))
        for got in both(lambda x: hvd.allgather(x), rows(rank, n + rank, dtype)):
            same(got, tf.concat([rows(r, n + r, dtype) for r in range(size)], 0), name)
        for got in both(lambda x: hvd.broadcast(x, size - 1), rows(rank, n, dtype)):
            same(got, rows(size - 1, n, dtype), name)
for got in both(lambda x: hvd.broadcast(x, 0), tf.constant([rank == 0, True])):
    assert got.numpy().tolist() == [True, True]
x = tf.constant([1.0, 2.0]) * (rank + 1)
total = size * (size + 1) / 2
for got in both(lambda: [
    hvd.allreduce(x, op=hvd.Average), hvd.allreduce(x), hvd.allreduce(x, average=False),
    hvd.allreduce(x, op=hvd.Min), hvd.allreduce(x, op=hvd.Max), hvd.allreduce(x, op=hvd.Product),
    hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5, name="scaled"),
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16),
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.bf16),
]):  # fmt: skip
    want = [total / size] * 2 + [total, 1, size, np.prod(range(1, size + 1))] + [total] * 3
    assert [float(y[0]) for y in got] == want, (got, want)
if size & (size - 1) == 0:
    for got in both(lambda: hvd.allreduce(tf.ones(4), op=hvd.Adasum)):
        assert np.allclose(got, 1.0), got
kinds = [(3, tf.float32), (2, tf.int32), (0, tf.float32), (9, tf.float32)]
many = [rows(rank, n, dtype) for n, dtype in kinds]
for got in both(lambda: hvd.grouped_allreduce(many, op=hvd.Sum)):
    for value, like in zip(got, many):
        same(value, like * 0 + sum(rows(r, like.shape[0], like.dtype) for r in range(size)))
for got in both(lambda: hvd.grouped_allgather([rows(rank, rank + 1), rows(rank, 1, tf.int64)])):
    same(got[0], tf.concat([rows(r, r + 1) for r in range(size)], 0))
    same(got[1], tf.concat([rows(r, 1, tf.int64) for r in range(size)], 0))
for got in both(lambda: hvd.alltoall(tf.range(2 * size) + 100 * rank)):
    same(got, tf.concat([tf.range(2 * rank, 2 * rank + 2) + 100 * r for r in range(size)], 0))
for got in both(lambda: hvd.alltoall(rows(rank, size * (rank + 1)), [rank + 1] * size)):
    parts = [rows(r, size * (r + 1))[rank * (r + 1) : (rank + 1) * (r + 1)] for r in range(size)]
    same(got[0], tf.concat(parts, 0))
    assert got[1].numpy().tolist() == list(range(1, size + 1))
mine = np.array_split(sum(rows(r, 2 * size + 1).numpy() for r in range(size)), size)[rank]
for got in both(lambda: [
    hvd.reducescatter(rows(rank, 2 * size + 1), op=hvd.Sum),
    hvd.reducescatter(rows(rank, 2 * size + 1)) * size,
    *hvd.grouped_reducescatter([rows(rank, 2 * size + 1), rows(rank, 2 * size + 1)], op=hvd.Sum),
]):  # fmt: skip
    for value in got:
        assert np.allclose(value, mine), (value, mine)
for got in both(lambda: [
    hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op(), hvd.process_set_included_op()
]):  # fmt: skip
    assert [int(v) for v in got] == [size, rank, hvd.local_size(), hvd.local_rank(), 1], got

# Slices.
slices = tf.IndexedSlices(tf.ones([2, 3]) * (rank + 1), tf.constant([rank, size]), dense_shape=[size + 1, 3])
for got in both(lambda: tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum))):
    assert np.allclose(got[:, 0], [*range(1, size + 1), total]), got
for got in both(lambda: tf.convert_to_tensor(hvd.allreduce(slices))):
    assert np.allclose(got[:, 0] * size, [*range(1, size + 1), total]), got
try:
    hvd.allreduce(slices, op=hvd.Max)
    raise AssertionError("slices have no maximum")
except NotImplementedError:
    pass

# Variables and objects.
variables = [tf.Variable(rows(rank, 4)), tf.Variable(rank), tf.Variable([rank > 0])]
hvd.broadcast_(variables, 0)
hvd.broadcast_variables([tf.Variable(1.0 * rank)], 0, inplace=True)
same(variables[0].value(), rows(0, 4))
assert int(variables[1]) == 0 and not bool(variables[2][0])
hvd.broadcast_variables(variables, root_rank=size - 1)
assert hvd.broadcast_object({"rank": rank}, 0) == {"rank": 0}
assert hvd.broadcast_object_fn(root_rank=0)(rank) == 0
assert hvd.allgather_object(rank) == list(range(size))


# Gradients: of the sum of each result, by the values that Horovod's own tests expect.
def gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x) * (rank + 1.0))
    return tape.gradient(y, x)


x = rows(rank, 2 * size)
for got in both(gradient, lambda x: hvd.allreduce(x, op=hvd.Sum), x):
    assert np.allclose(got, total), got
for got in both(gradient, lambda x: hvd.allreduce(x), x):
    assert np.allclose(got, total / size), got
for got in both(gradient, lambda x: tf.add_n(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)), x):
    assert np.allclose(got, 3 * total), got
for got in both(gradient, lambda x: hvd.allgather(x), x):
    assert got.shape == x.shape and np.allclose(got, total / size), got
for got in both(gradient, lambda x: hvd.broadcast(x, 0), x):
    assert np.allclose(got, total / size if rank == 0 else 0), got
for got in both(gradient, lambda x: hvd.alltoall(x), x):
    assert np.allclose(got[:, 0], np.repeat(np.arange(1, size + 1), 2)), got
for got in both(gradient, lambda x: hvd.reducescatter(x, op=hvd.Sum), x):
    assert np.allclose(got[:, 0], size * np.repeat(np.arange(1, size + 1), 2)), got
for got in both(gradient, lambda x: hvd.alltoall(x, [1] * size)[0], x):
    assert np.allclose(got[:size, 0], np.arange(1, size + 1)) and np.allclose(got[size:], 0), got

# Any order, any number.
@tf.function
def crossed(x):
    order = range(40) if rank % 2 else range(39, -1, -1)
    return tf.add_n([hvd.allreduce(x * i, op=hvd.Sum, name=f"crossed.{i}") for i in order])

assert np.allclose(crossed(tf.ones(1000)), size * sum(range(40)))


# The same name in two calls of a function, and in a loop.
@tf.function
def named(x):
    return hvd.allreduce(x, op=hvd.Sum, name="named")

twice = tf.function(lambda x: named(x) + named(2 * x))
assert np.allclose(twice(tf.ones(3)), 3 * size)


@tf.function
def loop(x):
    for _ in tf.range(3):
        x = hvd.allreduce(x)
    return x


assert np.allclose(loop(tf.ones(3)), 1.0)

# What does not depend on an input is not computed before the graph runs, nor kept.
constant = tf.function(lambda: hvd.allreduce(tf.constant(1.0), op=hvd.Sum))
assert float(constant()) == float(constant()) == size

# Process sets.
if size > 1:
    even = hvd.ProcessSet(range(0, size, 2))
    hvd.shutdown()
    hvd.init(process_sets=[even])
    if even.included():
        for got in both(lambda: [
            hvd.allreduce(tf.constant(1.0), op=hvd.Sum, process_set=even),
            hvd.allreduce(tf.constant(4.0), process_set=even) / 4.0 * even.size(),
            tf.reduce_sum(hvd.allgather(tf.ones(1), process_set=even)),
            hvd.broadcast(tf.constant(float(rank + even.size())), 0, process_set=even),
            tf.reduce_sum(hvd.alltoall(tf.ones(even.size()), process_set=even)),
        ]):  # fmt: skip
            assert [float(v) for v in got] == [even.size()] * 5, got
        assert int(hvd.size_op(even.process_set_id)) == even.size()
    else:
        try:
            hvd.allreduce(tf.constant(1.0), process_set=even)
            raise AssertionError("a rank that is not in the process set took part")
        except ValueError:
            pass
    assert float(constant()) == size  # a graph of the world before

    # Errors.
    try:
        hvd.allreduce(tf.ones(rank + 1), name="mismatch")
        raise AssertionError("different shapes were added up")
    except hvd.HorovodInternalError as error:
        assert isinstance(error, tf.errors.FailedPreconditionError), error
    try:
        tf.function(lambda: hvd.allreduce(tf.ones(rank + 1), name="mismatch"))()
        raise AssertionError("different shapes were added up")
    except tf.errors.OpError as error:
        assert "rank" in str(error)
    assert float(hvd.allreduce(tf.constant(1.0), name="mismatch")) == 1.0

    # A rank without data.
    if rank == 0:
        last = hvd.join()
    else:
        assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="joined")) == size - 1
        last = hvd.join()
    assert 0 <= int(last) < size

    # Ranks with different numbers of calls without names go on together.
    for turn in range(2):
        for _ in range(2 + (rank + turn) % size):
            hvd.allreduce(tf.ones(3))
        hvd.join()
        assert hvd.allgather(tf.constant([rank])).numpy().tolist() == list(range(size))
        assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == size

hvd.barrier()
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
