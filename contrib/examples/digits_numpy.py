"""Train a small network on handwritten digits with nothing but NumPy, for hosts without torch.

    gorun -np 4 -H host1:2,host2:2 python3 digits_numpy.py

The digits are scikit-learn's where that is installed, else drawn from glyphs, moved about and blurred.
"""

import argparse
import time

import gorun.numpy as hvd
import numpy as np

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch-size", type=int, default=16, help="of one rank")
parser.add_argument("--lr", type=float, default=0.02, help="for one rank; grows with their number")
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--synthetic", action="store_true", help="draw the digits, even if scikit-learn is here")
parser.add_argument("--target", type=float, default=0.0, help="fail if the final accuracy is below this")

# One row a line of 5 pixels, seven lines a digit.
GLYPHS = """
    01110 00100 01110 11111 00010 11111 00110 11111 01110 01110
    10001 01100 10001 00010 00110 10000 01000 00001 10001 10001
    10011 00100 00001 00100 01010 11110 10000 00010 10001 10001
    10101 00100 00010 00010 10010 00001 11110 00100 01110 01111
    11001 00100 00100 00001 11111 00001 10001 01000 10001 00001
    10001 00100 01000 10001 00010 10001 10001 01000 10001 00010
    01110 01110 11111 01110 00010 01110 01110 01000 01110 01100
"""


def draw(count: int, seed: int) -> "tuple[np.ndarray, np.ndarray]":
    """Return images of 8x8 pixels, 0 to 16, and what they show: the same for the same seed."""
    rng = np.random.default_rng(seed)
    rows = [line.split() for line in GLYPHS.strip().splitlines()]
    glyphs = np.array([[[int(c) for c in row[d]] for row in rows] for d in range(10)], float)
    labels = rng.integers(10, size=count)
    images = np.zeros((count, 8, 8))
    for image, label in zip(images, labels):
        down, right = rng.integers(0, 2), rng.integers(0, 4)
        image[down : down + 7, right : right + 5] = glyphs[label] * rng.uniform(0.6, 1.0)
    blurred = images * 0.6
    for axis in (1, 2):
        for shift in (1, -1):
            blurred += 0.1 * np.roll(images, shift, axis)
    return np.clip(blurred + rng.normal(0, 0.08, images.shape), 0, 1) * 16, labels


def load(args: argparse.Namespace) -> "tuple[np.ndarray, np.ndarray, str]":
    """Return images as rows of 64 numbers, labels, and where they come from."""
    if not args.synthetic:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            pass
        else:
            digits = load_digits()
            return digits.data.astype("f4") / 16, digits.target, "scikit-learn's digits"
    images, labels = draw(1800, args.seed)
    return (images.reshape(-1, 64) / 16).astype("f4"), labels, "digits drawn from glyphs"


class Network:
    """64 pixels, two hidden layers, 10 classes; weights as one flat list of arrays."""

    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        sizes = [64, hidden, hidden, 10]
        self.weights = []
        for fan_in, fan_out in zip(sizes, sizes[1:]):
            self.weights.append((rng.normal(size=(fan_in, fan_out)) * np.sqrt(2 / fan_in)).astype("f4"))
            self.weights.append(np.zeros(fan_out, "f4"))

    def layers(self, x: np.ndarray) -> "list[np.ndarray]":
        """Return the input of each layer, and last the scores."""
        outputs = [x]
        for i in range(0, len(self.weights), 2):
            x = x @ self.weights[i] + self.weights[i + 1]
            if i + 2 < len(self.weights):
                x = np.maximum(x, 0)
            outputs.append(x)
        return outputs

    def gradients(self, x: np.ndarray, labels: np.ndarray) -> "tuple[float, list[np.ndarray]]":
        """Return the loss and its gradient for every array of weights."""
        *inputs, scores = self.layers(x)
        scores = np.exp(scores - scores.max(1, keepdims=True))
        probabilities = scores / scores.sum(1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels] + 1e-12).mean()
        delta = probabilities
        delta[rows, labels] -= 1
        delta /= len(labels)
        grads = []
        for i in range(len(inputs) - 1, -1, -1):
            grads += [delta.sum(0), inputs[i].T @ delta]
            delta = (delta @ self.weights[2 * i].T) * (inputs[i] > 0)
        return float(loss), grads[::-1]


def main() -> None:
    """Train, and print the accuracy."""
    args = parser.parse_args()
    hvd.init()
    x, y, source = load(args)
    order = np.random.default_rng(args.seed).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    if hvd.rank() == 0:
        print(f"{source}: {len(train)} to train with, {len(test)} to test, {hvd.size()} ranks", flush=True)

    network = Network(args.hidden, np.random.default_rng(args.seed + hvd.rank()))
    for weights in network.weights:
        hvd.broadcast_(weights, root_rank=0)
    speeds = [np.zeros_like(weights) for weights in network.weights]
    momentum = 0.9

    accuracy = 0.0
    for epoch in range(1, args.epochs + 1):
        shuffled = np.random.default_rng(args.seed + epoch).permutation(train)
        mine = shuffled[: len(shuffled) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]
        lr = args.lr * hvd.size() * (1 + np.cos(np.pi * (epoch - 1) / args.epochs)) / 2
        start, losses = time.perf_counter(), []
        for i in range(0, len(mine), args.batch_size):
            batch = mine[i : i + args.batch_size]
            loss, grads = network.gradients(x[batch], y[batch])
            losses.append(loss)
            for weights, speed, grad in zip(network.weights, speeds, hvd.grouped_allreduce(grads)):
                speed *= momentum
                speed += grad
                weights -= lr * speed
        elapsed = time.perf_counter() - start

        share = test[hvd.rank() :: hvd.size()]
        right = (network.layers(x[share])[-1].argmax(1) == y[share]).sum()
        loss = float(hvd.allreduce(np.mean(losses)))
        accuracy = float(hvd.allreduce(float(right), op=hvd.Sum)) / len(test)
        if hvd.rank() == 0:
            rate = len(train) / elapsed
            line = f"epoch {epoch:2d}  loss {loss:.4f}  accuracy {accuracy:.2%}  {rate:,.0f} images/s"
            print(line, flush=True)

    if hvd.rank() == 0:
        print(f"final accuracy {accuracy:.2%} with {hvd.size()} ranks", flush=True)
    if accuracy < args.target:
        raise SystemExit(f"accuracy {accuracy:.2%} is below {args.target:.2%}")


if __name__ == "__main__":
    main()
