"""The CPUs of the processes that a rank starts, such as the workers of a DataLoader.

With ``--bind-to core`` a rank has its cores to itself, and what it forks or spawns would share them. The
daemon names cores that no rank has; without any, or without a binding, nothing is changed. Their memory
comes from the rank's NUMA nodes as before: Linux hands the policy on.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "GORUN_SPARE_CPUS"


def move() -> None:
    """Move this process, a child of a rank, to the cores for such processes."""
    try:
        os.sched_setaffinity(0, {int(cpu) for cpu in os.environ.get(VARIABLE, "").split(",") if cpu})
    except (AttributeError, OSError, ValueError):
        pass  # another system, or CPUs that are gone: the process stays where it is


def watch() -> None:
    """Move every process that is forked from here on, and this one if multiprocessing has spawned it."""
    if not os.environ.get(VARIABLE):
        return
    os.register_at_fork(after_in_child=move)
    process = sys.modules.get("multiprocessing.process")
    # While a spawned process imports its program, it knows only that it has a parent, not which.
    if process is None:
        return
    if process.parent_process() or getattr(process.current_process(), "_inheriting", False):
        move()
