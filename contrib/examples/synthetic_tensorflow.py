"""Measure the training of ResNet-50 with TensorFlow on random images.

    gorun -np 4 -H host1:2,host2:2 python3 synthetic_tensorflow.py
"""

import argparse
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="ResNet50", help="one of tf.keras.applications")
parser.add_argument("--batch-size", type=int, default=8, help="of one rank")
parser.add_argument("--image-size", type=int, default=64)
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
parser.add_argument("--num-warmup-batches", type=int, default=2)
parser.add_argument("--num-batches-per-iter", type=int, default=2)
parser.add_argument("--num-iters", type=int, default=5)
args = parser.parse_args()

hvd.init()
shape = (args.image_size, args.image_size, 3)
model = getattr(tf.keras.applications, args.model)(weights=None, input_shape=shape)
optimizer = tf.keras.optimizers.SGD(0.01)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
data = tf.random.uniform([args.batch_size, *shape])
target = tf.random.uniform([args.batch_size, 1], maxval=999, dtype=tf.int64)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none


@tf.function
def benchmark_step() -> None:
    """Take one step."""
    with tf.GradientTape() as tape:
        loss = loss_of(target, model(data, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=compression)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


def say(text: str) -> None:
    """Print on one rank."""
    if hvd.rank() == 0:
        print(text, flush=True)


benchmark_step()
hvd.broadcast_variables(model.variables, root_rank=0)
for _ in range(args.num_warmup_batches):
    benchmark_step()
rates = []
for i in range(args.num_iters):
    start = time.perf_counter()
    for _ in range(args.num_batches_per_iter):
        benchmark_step()
    rates.append(args.batch_size * args.num_batches_per_iter / (time.perf_counter() - start))
    say(f"Iter #{i}: {rates[-1]:.1f} img/sec per CPU")
mean, spread = np.mean(rates), 1.96 * np.std(rates)
say(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
say(f"Total img/sec on {hvd.size()} CPU(s): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
