"""Train a small network of JAX on all ranks together. It needs JAX and optax; its data are made up.

    gorun -np 4 -H host1:2,host2:2 python3 classify_jax.py
"""

import argparse

import horovod.jax as hvd
import jax
import jax.numpy as jnp
import numpy as np
import optax

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch-size", type=int, default=16, help="of one rank")
parser.add_argument("--lr", type=float, default=1e-3, help="for one rank; grows with their number")
parser.add_argument("--target", type=float, default=0.0, help="fail if the final accuracy is below this")


def predict(params: list, x: jax.Array) -> jax.Array:
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias


def loss(params: list, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, x), y).mean()


def main() -> None:
    args = parser.parse_args()
    hvd.init()
    rng = np.random.default_rng(0)  # the same data everywhere, of which each rank takes a part
    images = rng.normal(size=(1800, 64)).astype(np.float32)
    labels = (images @ rng.normal(size=(64, 10))).argmax(1)
    test_images, test_labels = images[1400:], labels[1400:]
    images, labels = images[:1400][hvd.rank() :: hvd.size()], labels[:1400][hvd.rank() :: hvd.size()]

    keys = jax.random.split(jax.random.PRNGKey(hvd.rank()), 2)
    layers = zip(keys, (64, 128), (128, 10))
    params = [(jax.random.normal(key, (a, b)) * a**-0.5, jnp.zeros(b)) for key, a, b in layers]
    params = hvd.broadcast_parameters(params, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optax.adam(args.lr * hvd.size()))
    state = optimizer.init(params)

    @jax.jit
    def step(params: list, state: optax.OptState, x: jax.Array, y: jax.Array) -> tuple:
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    accuracy = 0.0
    batches = 1400 // hvd.size() // args.batch_size  # the same number on every rank
    for epoch in range(args.epochs):
        shuffled = np.random.default_rng(epoch).permutation(len(labels))
        for batch in range(batches):
            chosen = shuffled[batch * args.batch_size :][: args.batch_size]
            params, state = step(params, state, images[chosen], labels[chosen])
        mine = slice(hvd.rank(), None, hvd.size())
        right = (predict(params, test_images[mine]).argmax(1) == test_labels[mine]).sum()
        accuracy = float(hvd.allreduce(right, op=hvd.Sum)) / len(test_labels)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {accuracy:.2%}", flush=True)
    if hvd.rank() == 0:
        print(f"final accuracy {accuracy:.2%} with {hvd.size()} ranks")
    if accuracy < args.target:
        raise SystemExit(f"accuracy {accuracy:.2%} is below {args.target:.2%}")


if __name__ == "__main__":
    main()
