"""Run by every rank of a real job: what is counted of TensorFlow's and Keras' steps, data and communication.

The script calls nothing of gorun's to count. A batch takes 50 ms; TensorFlow may make one ahead.
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if sys.argv[1:] == ["keras"]:
    import horovod.keras as hvd
    import keras
else:
    import horovod.tensorflow as hvd
    import tensorflow as tf
    from tensorflow import keras

import numpy as np

from gorun.counters import counters

hvd.init()
STEPS, PAUSE = 10, 0.05


def batches(count=STEPS):
    for _ in range(count):
        time.sleep(PAUSE)
        yield np.ones((8, 256), np.float32), np.ones((8, 1), np.float32)


def model():
    made = keras.Sequential([keras.layers.Dense(256, activation="tanh"), keras.layers.Dense(1)])
    made.build((None, 256))
    return made


def dataset():
    types = tf.TensorSpec((8, 256), tf.float32), tf.TensorSpec((8, 1), tf.float32)
    return tf.data.Dataset.from_generator(batches, output_signature=types)


def by_tape(graph):
    """Train with a tape: eagerly, or in a function that also reads the data."""
    made, optimizer = model(), keras.optimizers.SGD(0.01)
    optimizer.build(made.trainable_variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(made(x) - y))
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(loss, made.trainable_variables)
        optimizer.apply_gradients(zip(grads, made.trainable_variables))

    @tf.function
    def whole(iterator):
        step(*next(iterator))

    iterator = iter(dataset())
    try:
        while True:
            whole(iterator) if graph else step(*next(iterator))
    except (tf.errors.OutOfRangeError, StopIteration):
        pass


def by_fit():
    """Train by Keras."""
    made = model()
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    # One more: Keras 3.6 on JAX takes a batch to build the model.
    data = batches(STEPS + 1) if sys.argv[1:] == ["keras"] else dataset()
    made.fit(data, epochs=1, steps_per_epoch=STEPS, verbose=0)


def check(name, train):
    """Check that a training of so many steps is counted."""
    before = counters.totals()
    train()
    counted = {key: value - before[key] for key, value in counters.totals().items()}
    waits = sum(counted[key] for key in ("data", "others", "communication"))
    print(f"{name}: {counted}", flush=True)
    assert counted["steps"] == STEPS, counted
    assert counted["data"] >= PAUSE * 1e9, counted  # the first batch, at least
    assert waits <= counted["elapsed"], counted
    if hvd.size() > 1:
        assert counted["operations"] >= STEPS, counted
        assert counted["others"] + counted["communication"] > 0, counted


if sys.argv[1:] != ["keras"]:
    check("eager", lambda: by_tape(False))
    check("graph", lambda: by_tape(True))
check("fit", by_fit)
print(f"rank {hvd.rank()}: ok", flush=True)
hvd.shutdown()
