"""Steps of a training whose result can be compared bit by bit: python3 steps.py STEPS [SECONDS_BETWEEN [FILE]]

It ends after STEPS, or earlier, when rank 0 finds FILE.
"""

import hashlib
import os
import sys
import time

import gorun.numpy as hvd
import numpy as np

hvd.init()
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
enough = sys.argv[3] if len(sys.argv) > 3 else ""
rng = np.random.default_rng(hvd.rank())
weights = np.zeros(50_000, np.float32)
for step in range(int(sys.argv[1])):
    # Sums of these are exact, so their bits do not depend on the order in which an algorithm adds.
    gradient = rng.integers(-(1 << 20), 1 << 20, weights.size).astype(np.float32)
    weights -= 0.01 * hvd.allreduce(gradient, name="gradient")
    if hvd.rank() == 0:
        print(f"step {step} at {time.time():.3f}", flush=True)
    if enough and hvd.broadcast(np.array([os.path.exists(enough)], np.int32), 0, name="enough")[0]:
        break
    time.sleep(pause)
print(f"rank {hvd.rank()}, process {os.getpid()}, weights {hashlib.sha256(weights.tobytes()).hexdigest()}", flush=True)
