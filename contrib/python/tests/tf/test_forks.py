"""Run by every rank of a real job: a program that forks while a step runs, as loaders of data do."""

import multiprocessing
import os
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

STEPS, CHILDREN, WITHIN = 40, 6, 120  # seconds

hvd.init()
rank, size, parent = hvd.rank(), hvd.size(), os.getpid()
weight = tf.Variable(tf.zeros([1000]))
target = tf.constant(np.full(1000, 1.0 + rank, np.float32))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(weight - target))
    gradient = hvd.DistributedGradientTape(tape).gradient(loss, weight)
    weight.assign_sub(0.1 * gradient)
    return hvd.allreduce(weight, name="weights", op=hvd.Sum)


def refused(function, *args):
    try:
        function(*args)
    except ValueError:
        return True
    return False


def prepared(number):
    """Prepare a batch, in a process of the pool."""
    assert not hvd.is_initialized() and refused(hvd.rank) and refused(hvd.allreduce, target)
    return np.full(1000, number, np.float32)


class Batches(tf.keras.utils.Sequence):
    """Batches that Keras has prepared by processes."""

    if hasattr(tf.keras.utils, "PyDataset"):  # Keras 3

        def __init__(self):
            super().__init__(workers=2, use_multiprocessing=True)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        assert hvd.is_initialized() == (os.getpid() == parent)  # Keras looks at one itself
        return np.full((10, 100), index, np.float32), np.ones((10, 1), np.float32)


def train():
    for _ in range(STEPS):
        sums.append(step())


# What children of a running program try is refused, and no step notices them. Some end by sys.exit().
sums = []
trainer = threading.Thread(target=train)
trainer.start()
for child in range(CHILDREN):
    pid = os.fork()
    if pid == 0:
        good = not hvd.is_initialized() and refused(hvd.size) and refused(hvd.allreduce, target)
        if child % 2:
            os._exit(not good)
        sys.exit(not good)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
with multiprocessing.get_context("fork").Pool(2) as pool:
    batches = pool.map_async(prepared, range(8)).get(WITHIN)
trainer.join()
assert [batch[0] for batch in batches] == list(range(8))
mean = (size + 1) / 2
wants = [size * mean * (1 - 0.8 ** (i + 1)) for i in range(STEPS)]
assert np.allclose([total[0] for total in sums], wants, rtol=1e-4), "a step noticed a child"

# Keras prepares batches by processes that it forks in the middle of fit().
model = tf.keras.Sequential([tf.keras.layers.Input((100,)), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1e-4)), "mse")
hvd.broadcast_variables(model.variables, root_rank=0)
how = {} if hasattr(tf.keras.utils, "PyDataset") else {"workers": 2, "use_multiprocessing": True}
model.fit(Batches(), epochs=2, verbose=0, **how)
kernels = hvd.allgather_object(model.get_weights()[0])
assert all(np.array_equal(kernel, kernels[0]) for kernel in kernels)

assert int(hvd.allreduce(tf.constant(1), op=hvd.Sum)) == size
hvd.shutdown()
print(f"rank {rank} of {size}: ok")
