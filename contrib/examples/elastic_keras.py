"""Train with Keras while hosts come and go: an ordinary elastic Horovod script, on made-up data.

    gorun -np 2 --min-np 1 --host-discovery-script ./hosts.sh python3 elastic_keras.py
"""

import argparse

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--steps", type=int, default=40, help="of all ranks in an epoch")
args = parser.parse_args()

hvd.init()
rate = 0.01
model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(1)])
model.build((None, 8))
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate * hvd.size())), "mse")
random = np.random.RandomState(hvd.rank())
images = random.randn(1024, 8).astype("f")
dataset = tf.data.Dataset.from_tensor_slices((images, images.sum(1, keepdims=True)))
dataset = dataset.repeat().shuffle(256).batch(args.batch_size)


def on_state_reset() -> None:
    """Take the learning rate for the number of ranks that there are now."""
    model.optimizer.learning_rate.assign(rate * hvd.size())


state = hvd.elastic.KerasState(model, batch=0, epoch=0)
state.register_reset_callbacks([on_state_reset])
callbacks = [
    hvd.callbacks.MetricAverageCallback(),
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    hvd.elastic.CommitStateCallback(state, batches_per_commit=5),
]


@hvd.elastic.run
def train(state: hvd.elastic.KerasState) -> None:
    """Train from the last commit to the end."""
    state.model.fit(
        dataset, steps_per_epoch=args.steps // hvd.size(), epochs=args.epochs - state.epoch,
        callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0,
    )  # fmt: skip


train(state)
if hvd.rank() == 0:
    print(f"trained {state.epoch} epochs, at last with {hvd.size()} ranks", flush=True)
