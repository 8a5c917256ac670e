"""Descend a gradient with NumPy: every rank has data of its own, and the weights depend on every bit that travels."""

import argparse
import hashlib
import os
import time

import gorun.numpy as hvd
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--batches", type=int, default=100)
parser.add_argument("--rows", type=int, default=512, help="of the weights, a KiB each")
parser.add_argument("--pause", type=float, default=0.0, help="seconds of each batch")
args = parser.parse_args()

hvd.init()
rng = np.random.default_rng(hvd.rank())
weights = np.zeros((args.rows, 256), dtype=np.float32)
waits = []
until = os.environ.get("UNTIL") if hvd.rank() == 0 else None  # a file that must be there before the last batch
for batch in range(1, args.batches + 1):
    while until and batch == args.batches and not os.path.exists(until):
        time.sleep(0.02)
    data = rng.standard_normal(weights.shape, dtype=np.float32)
    gradient = weights * data * data - data
    began = time.monotonic()
    weights -= np.float32(0.1) * hvd.allreduce(gradient, name="gradient", op=hvd.Average)
    waits.append(time.monotonic() - began)
    time.sleep(args.pause)
    if hvd.rank() == 0:
        print(f"batch {batch}", flush=True)
waits.sort()
print(f"rank {hvd.rank()} waited for {waits[-1]:.3f} s at most, usually for {waits[len(waits) // 2]:.3f} s", flush=True)
print(f"rank {hvd.rank()} has {hashlib.sha256(weights.tobytes()).hexdigest()}", flush=True)
hvd.shutdown()
