"""Train on actors of a Ray cluster, and take the model of rank 0.

    python3 line_ray.py                       # a Ray of this machine alone
    RAY_ADDRESS=auto python3 line_ray.py      # the cluster that this machine is a node of

Needs Ray, NumPy, and gorun on all nodes.
"""

import argparse

import numpy as np
import ray
from horovod.ray import RayExecutor

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--steps", type=int, default=200)


def train(steps: int) -> "tuple[float, np.ndarray]":
    """Fit a line to points that each rank draws for itself; return the error and the line."""
    import gorun.numpy as hvd

    hvd.init()
    random = np.random.default_rng(hvd.rank())
    line = hvd.broadcast(random.normal(size=4), root_rank=0, name="start")
    for step in range(steps):
        points = random.normal(size=(64, 4))
        wrong = points @ line - points @ np.arange(4.0)
        line -= 0.05 * hvd.allreduce(points.T @ wrong / len(points), name="gradient")
        if step % 50 == 0 and hvd.rank() == 0:
            print(f"step {step}: error {np.square(wrong).mean():.4f}")
    return float(np.square(line - np.arange(4.0)).sum()), line


if __name__ == "__main__":
    args = parser.parse_args()
    ray.init()
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=args.workers)
    executor.start()
    results = executor.run(train, args=[args.steps])
    executor.shutdown()
    error, model = results[0]
    print(f"{len(results)} ranks, error {error:.2g}, model {model.round(2).tolist()}")
