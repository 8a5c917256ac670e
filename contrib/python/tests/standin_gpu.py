"""The stand-ins for libcuda and libnccl, built once for the tests of a process."""

import atexit
import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import unittest

from gorun.gpu.driver import Driver
from gorun.gpu.nccl import Nccl

SOURCES = os.path.join(os.path.dirname(__file__), "..", "..", "gpu")
GORUN = os.path.abspath(os.path.join(SOURCES, "..", "..", "bin", "gorun"))
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]


@functools.cache
def libraries():
    """Build the stand-ins and return their directory; a machine without a compiler skips the test."""
    if shutil.which("cc") is None:
        raise unittest.SkipTest("no C compiler, apt-get install gcc")
    made = tempfile.mkdtemp(prefix="gpu-standin-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    cuda = os.path.join(made, "libcuda.so.1")
    ptx = [os.path.join(SOURCES, "ptx.c"), "-lm"]
    for name, more in (("cuda", ptx), ("nccl", [cuda, "-Wl,-rpath,$ORIGIN"])):
        target = next(lib for lib in ("libcuda.so.1", "libnccl.so.2") if name in lib)
        out = ["-Wl,-soname," + target, "-o", os.path.join(made, target)]
        subprocess.run(["cc", *FLAGS, *out, os.path.join(SOURCES, f"{name}.c"), *more], check=True)
    return made


@functools.cache
def driver():
    """Return the stand-in driver, in this process."""
    return Driver(os.path.join(libraries(), "libcuda.so.1"))


@functools.cache
def nccl():
    """Return the stand-in NCCL, in this process."""
    driver()
    return Nccl(os.path.join(libraries(), "libnccl.so.2"))


def array(device, values, dtype="f4"):
    """Return an array over memory of a device, and its address."""
    import numpy as np

    values = np.asarray(values, dtype)
    address = device.alloc(max(values.nbytes, 1))
    memory = (ctypes.c_ubyte * values.nbytes).from_address(address)
    made = np.frombuffer(memory, dtype).reshape(values.shape)
    made[...] = values
    return made, address


@contextlib.contextmanager
def faults(**values):
    """Have the stand-ins make faults, files of the directory GPU_STANDIN; yield a function that sets more."""
    with tempfile.TemporaryDirectory(prefix="gpu-faults-") as directory:

        def make(**more):
            for name, value in more.items():
                path = os.path.join(directory, name)
                if value is None:
                    os.unlink(path)
                    continue
                with open(path + ".new", "w") as file:
                    file.write(str(value))
                os.rename(path + ".new", path)

        make(**values)
        before = os.environ.get("GPU_STANDIN")
        os.environ["GPU_STANDIN"] = directory
        try:
            yield make
        finally:
            if before is None:
                del os.environ["GPU_STANDIN"]
            else:
                os.environ["GPU_STANDIN"] = before


def run_job(*arguments, **made):
    """Run a job on this host, where ranks find the stand-ins, which make faults; return how it ended."""
    if not os.path.exists(GORUN):
        raise unittest.SkipTest(f"{GORUN} is not built: make build")
    with faults(**made):
        found = os.pathsep.join([libraries(), os.environ.get("LD_LIBRARY_PATH", "")])
        environ = {**os.environ, "LD_LIBRARY_PATH": found}
        environ.pop("PYTHONPATH", None)  # ranks import gorun from the binary
        return subprocess.run(
            [GORUN, *arguments], env=environ, capture_output=True, text=True, timeout=240, check=False
        )
