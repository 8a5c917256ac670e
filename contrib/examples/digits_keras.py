"""Train a small CNN on made-up digits with Keras, on TensorFlow, JAX or torch: an ordinary Horovod script.

    gorun -np 4 -H host1:2,host2:2 python3 digits_keras.py
    gorun -np 4 -x KERAS_BACKEND=jax python3 digits_keras.py
"""

import argparse
import os
import tempfile

import horovod.keras as hvd
import keras
import numpy as np

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
parser.add_argument("--target", type=float, default=0.0, help="fail if the final accuracy is below this")
args = parser.parse_args()


def digits(count: int, seed: int) -> "tuple[np.ndarray, np.ndarray]":
    """Return images of ten patterns under noise, and which pattern each shows."""
    patterns = np.random.RandomState(0).rand(10, 14, 14, 1) > 0.5
    random = np.random.RandomState(seed)
    labels = random.randint(10, size=count)
    return (patterns[labels] + random.randn(count, 14, 14, 1)).astype("f"), labels.astype("i8")


hvd.init()
model = keras.Sequential(
    [
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
rate = 0.001 * hvd.size()
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(rate))
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=1, verbose=1),
]
folder = tempfile.mkdtemp()
if hvd.rank() == 0:  # the others would write the same
    callbacks.append(keras.callbacks.ModelCheckpoint(os.path.join(folder, "checkpoint-{epoch}.weights.h5"),
                                                     save_weights_only=True))
images, labels = digits(2000, 1 + hvd.rank())
model.fit(images, labels, batch_size=args.batch_size, epochs=args.epochs, callbacks=callbacks,
          verbose=2 if hvd.rank() == 0 else 0)

_, accuracy = model.evaluate(*digits(1000, 1000 + hvd.rank()), verbose=0)
accuracy = float(hvd.allreduce(accuracy, name="accuracy"))
if hvd.rank() == 0:
    print(f"final accuracy {100 * accuracy:.1f}% with {hvd.size()} ranks")
assert accuracy >= args.target, f"accuracy {accuracy} is below {args.target}"
