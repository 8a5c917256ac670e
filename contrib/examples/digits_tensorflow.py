"""Train a small CNN on made-up digits with TensorFlow's GradientTape: an ordinary Horovod script.

    gorun -np 4 -H host1:2,host2:2 python3 digits_tensorflow.py
"""

import argparse

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=200, help="of all ranks together")
parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
parser.add_argument("--target", type=float, default=0.0, help="fail if the final accuracy is below this")
args = parser.parse_args()


def digits(count: int, seed: int) -> "tuple[np.ndarray, np.ndarray]":
    """Return images of ten patterns under noise, and which pattern each shows."""
    patterns = np.random.RandomState(0).rand(10, 14, 14, 1) > 0.5
    random = np.random.RandomState(seed)
    labels = random.randint(10, size=count)
    return (patterns[labels] + random.randn(count, 14, 14, 1)).astype("f"), labels.astype("i8")


hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

dataset = tf.data.Dataset.from_tensor_slices(digits(4000, 1 + hvd.rank()))
dataset = dataset.repeat().shuffle(1000).batch(args.batch_size)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(0.001 * hvd.size())
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none


@tf.function
def training_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Take one step on the gradients of all ranks."""
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=compression)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for batch, (images, labels) in enumerate(dataset.take(args.steps // hvd.size())):
    loss = training_step(images, labels)
    if batch == 0:  # now that the optimizer has its variables as well
        variables = optimizer.variables
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
    if batch % 20 == 0 and hvd.rank() == 0:
        print(f"step {batch}: loss {float(loss):.4f}", flush=True)

images, labels = digits(1000, 1000 + hvd.rank())
right = tf.reduce_mean(tf.cast(tf.argmax(model(images), 1) == labels, tf.float32))
accuracy = float(hvd.allreduce(right))
if hvd.rank() == 0:
    print(f"final accuracy {100 * accuracy:.1f}% with {hvd.size()} ranks")
assert accuracy >= args.target, f"accuracy {accuracy} is below {args.target}"
