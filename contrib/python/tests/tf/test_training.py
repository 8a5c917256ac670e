"""Run by every rank of a real job: tapes, optimizers and batch normalisation of TensorFlow.

Exits non-zero if ranks end with other weights than one process that sees all of the data.
"""

import functools
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")
hvd.init()
rank, size = hvd.rank(), hvd.size()
keras = tf.keras
KERAS_3 = hasattr(keras, "ops")
STEPS, ROWS = 4, 8


def data(r):
    x = np.random.RandomState(100 + r).randn(STEPS, ROWS, 5).astype("f")
    return x, x.sum(2, keepdims=True)


def model(seed=1):
    keras.utils.set_random_seed(seed)
    made = keras.Sequential([keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(1)])
    made.build((None, 5))
    return made


def loss_of(made, x, y):
    return tf.reduce_mean(tf.square(made(x) - y))


def alone(optimizer, factor=1.0, passes=1, average=False):
    """Return the weights of one process that sees the data of all ranks."""
    made = model()
    everything = [data(r) for r in range(size)]
    sums = None
    for step in range(STEPS):
        x, y = (np.concatenate([of[i][step] for of in everything]) for i in (0, 1))
        with tf.GradientTape() as tape:
            loss = loss_of(made, x, y) * factor
        grads = tape.gradient(loss, made.trainable_variables)
        sums = grads if sums is None else [a + b for a, b in zip(sums, grads)]
        if (step + 1) % passes == 0:
            part = [g / passes for g in sums] if average else sums
            optimizer.apply_gradients(zip(part, made.trainable_variables))
            sums = None
    return made.get_weights()


def close(made, want, what):
    for mine, theirs in zip(made.get_weights(), want):
        assert np.allclose(mine, theirs, rtol=1e-4, atol=1e-5), (what, np.abs(mine - theirs).max())


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def train(made, optimizer, compiled, tape_of=lambda tape: tape, factor=1.0, jit=None):
    """Train with a loop of the script's own."""

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(made, x, y) * factor
        grads = tape_of(tape).gradient(loss, made.trainable_variables)
        optimizer.apply_gradients(zip(grads, made.trainable_variables))

    if not KERAS_3:
        optimizer.build(made.trainable_variables)
    step = tf.function(step, jit_compile=jit) if compiled else step
    for x, y in zip(*data(rank)):
        step(tf.constant(x), tf.constant(y))
    return made


# Tapes, eagerly and in graphs.
want = alone(sgd())
for options in (
    {}, {"groups": 2}, {"num_groups": 1}, {"gradient_predivide_factor": 2.0}, {"op": hvd.Sum},
):  # fmt: skip
    for compiled in (False, True):
        distribute = functools.partial(hvd.DistributedGradientTape, **options)
        factor = 1 / size if options.get("op") == hvd.Sum else 1.0
        close(train(model(), sgd(), compiled, distribute, factor), want, (compiled, options))
if size == 1:  # XLA compiles the step, in which nothing is reduced
    close(train(model(), sgd(), True, hvd.DistributedGradientTape, jit=True), want, "jit_compile by a tape")
made = model()
with tf.GradientTape() as tape:
    loss = loss_of(made, *[part[0] for part in data(rank)])
tape = hvd.DistributedGradientTape(tape, groups=[[made.trainable_variables[0], made.trainable_variables[1]]])
one = tape.gradient(loss, made.trainable_variables[0], use_generic_names=True)
assert one.shape == (5, 7) and isinstance(tape, tf.GradientTape)

# Layers of a rank's own.
for scale in (True, False):
    made = model()
    with tf.GradientTape(persistent=True) as tape:
        loss = loss_of(made, *[part[0] for part in data(rank)])
    own = tape.gradient(loss, made.trainable_variables)
    tape = hvd.PartialDistributedGradientTape(
        tape, local_layers=[made.layers[1]], scale_local_gradients=scale
    )
    grads = tape.gradient(loss, made.trainable_variables)
    assert np.allclose(grads[2] * (size if scale else 1), own[2]), "a local layer's gradient"
    assert np.allclose(grads[0], hvd.allreduce(own[0])), "another layer's gradient"
    local, others = tape.get_local_and_global_gradients(loss, made.trainable_variables)
    assert (len(local), len(others)) == (2, 2)
table = tf.Variable(tf.ones([4, 2]))
for dense in (False, True):
    with tf.GradientTape() as tape:
        picked = tf.reduce_sum(tf.gather(table, [rank % 4, 0]))
    tape = hvd.DistributedGradientTape(tape, sparse_as_dense=dense)
    got = tape.gradient(picked, table)
    assert isinstance(got, tf.IndexedSlices) != dense
    want_rows = np.bincount([r % 4 for r in range(size)] + [0] * size, minlength=4) / size
    assert np.allclose(tf.convert_to_tensor(got)[:, 0], want_rows), got

# Optimizers of Keras.
want = alone(sgd())
for wrap in hvd.DistributedOptimizer, hvd_keras.DistributedOptimizer:
    for compiled in (False, True):
        optimizer = wrap(sgd())
        assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, keras.optimizers.SGD)
        close(train(model(), optimizer, compiled), want, ("optimizer", compiled))


def passes(made, compiled):
    """The iterations of Keras 2 count every pass: schedules of the learning rate go by them."""
    optimizer, v = hvd_keras.DistributedOptimizer(made, backward_passes_per_step=2), tf.Variable([0.0])

    def step():
        optimizer.apply_gradients(optimizer._compute_gradients(lambda: v * (rank + 1.0), [v]))

    _, step = optimizer.iterations, tf.function(step) if compiled else step
    for call in range(5):
        step()
        assert int(optimizer.iterations) == call + 1, (call, int(optimizer.iterations))
        assert int(optimizer._agg_helper.counter) == (call + 1) % 2
    assert np.isclose(v[0], -2 * (size + 1)), v


for compiled in (False, True) if not hasattr(keras, "ops") else ():
    passes(keras.optimizers.SGD(1.0), compiled)
    passes(keras.optimizers.legacy.SGD(1.0), compiled)
for average in (False, True):
    want = alone(sgd(), passes=2, average=average)
    made = model()
    made.compile(
        hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2, average_aggregated_gradients=average),
        "mse",
    )
    x, y = data(rank)
    made.fit(x.reshape(-1, 5), y.reshape(-1, 1), batch_size=ROWS, shuffle=False, verbose=0)
    close(made, want, ("passes", average))
made = model()
optimizer = hvd.DistributedOptimizer(sgd())
optimizer.register_local_var(made.trainable_variables[0])
for wrong in (
    lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Adasum),
    lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0),
    lambda: hvd.DistributedOptimizer(sgd(), groups=-1),
    lambda: hvd.DistributedOptimizer(optimizer),
    lambda: hvd.SyncBatchNormalization(fused=True),
):
    try:
        wrong()
        raise AssertionError("nothing was raised")
    except ValueError:
        pass

# XLA cannot compile the operations.
made = model()
made.compile(hvd.DistributedOptimizer(sgd()), "mse", jit_compile=True)
x, y = data(rank)
made.fit(x.reshape(-1, 5), y.reshape(-1, 1), batch_size=ROWS, shuffle=False, verbose=0)
close(made, alone(sgd()), "jit_compile")

# Batch normalisation: over all ranks' batches, and so are its gradients.
layer = hvd.SyncBatchNormalization()
whole = keras.layers.BatchNormalization()
x = tf.constant(np.random.RandomState(3).randn(size * 6, 4).astype("f") * 3 + 100)
weight = tf.constant(np.random.RandomState(4).randn(size * 6, 4).astype("f"))
part = slice(6 * rank, 6 * rank + 6)
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    reference = whole(x, training=True)
    scalar = tf.reduce_sum(reference * weight)
    mine = x[part]
    output = layer(mine, training=True)
    my_scalar = tf.reduce_sum(output * weight[part])
assert np.allclose(output, reference[part], atol=1e-3), np.abs(output - reference[part]).max()
assert np.allclose(layer.moving_mean, whole.moving_mean, rtol=1e-5)
assert np.allclose(layer.moving_variance, whole.moving_variance, rtol=1e-3)
got, expected = tape.gradient(my_scalar, mine), tape.gradient(scalar, x)[part]
assert np.allclose(got, expected, atol=2e-3), np.abs(got - expected).max()

# Graphs of TensorFlow 1.
v1 = tf.compat.v1
for options in ({}, {"backward_passes_per_step": 2}, {"op": hvd.Adasum}):
    if options.get("op") == hvd.Adasum and size & (size - 1):
        continue
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=[1.0 + rank, 2.0])
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), **options)
        loss = tf.reduce_sum(v * [rank + 1.0, 1.0])
        step = v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, global_step=step)
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with v1.train.SingularMonitoredSession(hooks=[hook]) as session:
            assert session.run(v).tolist() == [1.0, 2.0]
            session.run(train)
            after = session.run(v)
            if options.get("backward_passes_per_step"):
                assert after.tolist() == [1.0, 2.0] and session.run(step) == 1, after
                session.run(train)
                after = session.run(v)
            if "op" not in options:
                passes = options.get("backward_passes_per_step", 1)
                assert np.allclose(after, [1 - 0.5 * passes * (size + 1) / 2, 2 - 0.5 * passes]), after
            assert np.allclose(hvd.allgather_object(after.tolist()), after.tolist())
try:
    hvd.broadcast_global_variables(0)
    raise AssertionError("there are no global variables outside of graphs")
except RuntimeError:
    pass
eager = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
v = tf.Variable(0.0)
eager.apply_gradients(eager.compute_gradients(lambda: v * (rank + 1.0), [v]))
assert np.isclose(float(v), -(size + 1) / 2)

hvd.shutdown()
print(f"rank {rank} of {size}: ok", file=sys.stdout)
