"""A program of test_ray.py that reaches the cluster by Ray Client: ray_client.py ray://HOST:PORT FOLDER.

It runs a static job and an elastic one, has one fail, and is interrupted.
"""

import os
import sys
import time

import ray
from horovod.ray import RayExecutor


def place(more):
    """Return where this rank is, and a sum over all."""
    import gorun.numpy as hvd

    hvd.init()
    total = hvd.allreduce([float(hvd.rank() + more)], op=hvd.Sum).tolist()
    return hvd.rank(), hvd.size(), total


def fail():
    """Fail."""
    raise KeyError("bad luck")


def sleep(mark):
    """Say that this rank has begun, and sleep."""
    open(f"{mark}.{os.environ['HOROVOD_RANK']}", "x").close()
    time.sleep(600)


def raised(function, *args):
    """Return what a call raises, as a text."""
    try:
        function(*args)
    except BaseException as error:
        return f"{type(error).__name__}: {isinstance(error, KeyError)}: {error}"
    return "nothing"


address, folder = sys.argv[1:]
ray.init(address, log_to_driver=False)
settings = RayExecutor.create_settings(timeout_s=60)
executor = RayExecutor(settings, num_workers=4)
executor.start()
print("static", executor.run(place, [1]), flush=True)
print("fails", raised(executor.run, fail).splitlines()[0], flush=True)
print("interrupted", raised(executor.run, sleep, [os.path.join(folder, "mark")]).split(":")[0], flush=True)
began = time.monotonic()
executor.shutdown()
print("at once", time.monotonic() - began < 5, flush=True)
executor = RayExecutor(settings, min_workers=2, max_workers=2)
executor.start()
print("elastic", executor.run(place, [1]), flush=True)
executor.shutdown()
