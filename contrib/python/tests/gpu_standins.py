"""For programs over the stand-ins for libcuda and libnccl: which NCCL they find."""

import os

from gorun.gpu import nccl


def use():
    """Take the stand-in also where NVIDIA's library is beside it, which needs a GPU: torch brings it."""
    directory = os.environ["LD_LIBRARY_PATH"].split(":")[0]
    nccl.candidates = lambda: [os.path.join(directory, "libnccl.so.2")]
