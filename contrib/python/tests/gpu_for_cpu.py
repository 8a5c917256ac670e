"""Run a program whose tensors in host memory stand for a GPU's: gpu_for_cpu.py PROGRAM ARGUMENTS.

It runs over the stand-ins for libcuda and libnccl, whose memory is the host's. After the program it prints
which functions of NCCL moved data, and how often.
"""

import collections
import os
import runpy
import sys
from unittest import mock

import gpu_standins

from gorun import basics, turns
from gorun.gpu import group
from gorun.torch import gpu

CALLS = collections.Counter()


def ordinal():
    """Return the device of this rank: its own, or one that all share."""
    return 0 if "GPU_STANDIN_SHARED" in os.environ else basics.local_rank()


def stand_in():
    """Take tensors of the CPU for a GPU's, and count the calls of NCCL."""
    gpu.on_gpu = lambda tensor: tensor.layout is gpu.torch.strided and not tensor.is_conj()
    gpu.current_stream = lambda tensor: mock.Mock(cuda_stream=0)
    gpu.ordinal_of = lambda tensor: ordinal()
    gpu.default_ordinal = ordinal
    turns.turns = lambda *_: None  # which carry tensors in host memory
    gpu_standins.use()
    call = group.Group.call

    def count(self, name, *arguments):
        CALLS[name] += 1
        call(self, name, *arguments)

    group.Group.call = count


if __name__ == "__main__":
    stand_in()
    sys.argv[:1] = []
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("NCCL:", " ".join(f"{name}={count}" for name, count in sorted(CALLS.items())), flush=True)
