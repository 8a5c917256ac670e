"""Run by every rank of an elastic job: the last rank is killed in the middle of fit(), and the others go on.

Each of them prints how it ended.
"""

import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.keras as hvd
import keras
import numpy as np

EPOCHS, ROWS, BATCH = 4, 64, 8
hvd.init()
keras.utils.set_random_seed(hvd.rank())
dense = keras.layers.Dense
model = keras.Sequential([keras.layers.Input((3,)), dense(4, activation="tanh"), dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), "mse")
x = np.random.RandomState(hvd.rank()).randn(ROWS, 3).astype("f")
worlds = []


class Killed(keras.callbacks.Callback):
    """Kills the last rank of the first world, in its second epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if state.epoch == 1 and batch == 3 and len(worlds) == 1 and hvd.rank() == hvd.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    worlds.append(hvd.size())
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=2), Killed(),
    ]  # fmt: skip
    epochs = EPOCHS - state.epoch
    state.model.fit(x, x.sum(1, keepdims=True), BATCH, epochs=epochs, callbacks=callbacks, verbose=0)


state = hvd.elastic.KerasState(model, epoch=0, batch=0)
train(state)
weights = np.asarray(hvd.allgather(np.concatenate([np.ravel(w) for w in model.get_weights()])[None]))
assert (weights == weights[0]).all(), "ranks ended with different weights"
print(f"done rank {hvd.rank()} of {hvd.size()}: epochs {state.epoch} worlds {worlds}", flush=True)
hvd.shutdown()
