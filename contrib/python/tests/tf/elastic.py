"""Run by every rank of an elastic job: training with TensorFlow that a rank's death interrupts.

elastic.py STEPS: at step 5 of the first world the last rank kills itself. Each rank prints how it ended.
"""

import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")
STEPS = int(sys.argv[1])
hvd.init()
tf.keras.utils.set_random_seed(hvd.rank())
model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)])
model.build((None, 3))
optimizer = tf.keras.optimizers.SGD(0.05)
optimizer.build(model.trainable_variables)
worlds = []


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - 1.0))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return hvd.allreduce(loss)


@hvd.elastic.run
def train(state):
    worlds.append(hvd.size())
    while state.step < STEPS:
        if state.step == 5 and len(worlds) == 1 and hvd.rank() == hvd.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        x = np.random.RandomState(state.step * 100 + hvd.rank()).randn(8, 3).astype("f")
        try:
            step(tf.constant(x))
        except tf.errors.OpError as error:
            assert "gorun" in str(error), error
            raise
        state.step += 1
        if state.step % 2 == 0:
            state.commit()


state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)
train(state)
variables = hvd.elastic.TensorFlowState([tf.Variable(1.0 * hvd.rank())], count=3)
variables.sync()
assert float(variables.variables[0]) == 0.0
variables.variables[0].assign(5.0)
variables.restore()
assert float(variables.variables[0]) == 0.0 and variables.count == 3
weights = [w.tolist() for w in model.get_weights()]
assert all(other == weights for other in hvd.allgather_object(weights)), "ranks ended with different weights"
print(f"done rank {hvd.rank()} of {hvd.size()}: steps {state.step} worlds {len(worlds)}", flush=True)
hvd.shutdown()
