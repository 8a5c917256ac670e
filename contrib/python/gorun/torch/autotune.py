"""The log of HOROVOD_AUTOTUNE_LOG, in the columns that Horovod's own tuner writes.

gorun searches for nothing: the size of buckets is given, and the daemons choose how to reduce each from what
they measured of their links. So the file shows what was chosen, and how fast it was.
"""

from __future__ import annotations

import os
import time

from gorun import basics

COLUMNS = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score"
)


class Log:
    """A line for a number of steps: the choices, and bytes per microsecond as their score."""

    def __init__(self, path: str, threshold: int) -> None:
        self._file = open(path, "w")  # noqa: SIM115 (until the process ends)
        self._threshold = threshold
        self._warmup = _number("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", 3)
        self._steps = max(_number("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", 10), 1)
        self._began = 0
        self._seen = 0
        self._elapsed = 0
        self._bytes = 0
        self._file.write(COLUMNS + "\n")
        self._file.flush()

    def begin(self) -> None:
        """Note that the first gradient of a step is ready."""
        if not self._began:
            self._began = time.monotonic_ns()

    def end(self, nbytes: int) -> None:
        """Note that all gradients of the step, with this many bytes, are reduced."""
        if not self._began:
            return
        self._elapsed += time.monotonic_ns() - self._began
        self._bytes += nbytes
        self._began = 0
        self._seen += 1
        if self._seen % self._steps:
            return
        if self._seen > self._warmup * self._steps:
            score = self._bytes * 1000 / max(self._elapsed, 1)
            self._file.write(f"0,0,0,1,0,{self._threshold},{score:g}\n")
            self._file.flush()
        self._elapsed = self._bytes = 0


def log(threshold: int) -> Log | None:
    """Return the log that the environment asks for, on rank 0."""
    path = os.environ.get("HOROVOD_AUTOTUNE_LOG")
    if not path or os.environ.get("HOROVOD_AUTOTUNE", "0") in ("", "0") or basics.rank() != 0:
        return None
    return Log(path, threshold)


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)
