"""A backend for torch.distributed: import gorun.torch.distributed, then

    torch.distributed.init_process_group("gorun")

and DDP, FSDP and torch.distributed's own functions run on gorun's engine, in groups of some of the ranks too.
The job is started by gorun, whose environment holds what init_process_group() reads.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch
from torch import distributed as dist

from gorun import basics, loaders, process_sets
from gorun.counters import counters
from gorun.features import is_version_greater_equal_than
from gorun.torch.distributed.group import ProcessGroup, devices, meet

__all__ = ["ProcessGroup"]


def _create(store: dist.Store, rank: int, size: int, timeout: Any) -> Any:
    basics.init()
    if not dist.is_initialized() and (rank, size) != (basics.rank(), basics.size()):
        raise ValueError(
            f"init_process_group: rank {rank} of {size}, but gorun started this as rank {basics.rank()} of "
            f"{basics.size()}: use gorun to start the job, and no other launcher"
        )
    if not dist.is_initialized() or basics.size() == 1:
        return ProcessGroup(process_sets.global_process_set, store, timeout)
    return ProcessGroup(meet(store, rank, size), store, timeout)


def _stepped(optimizer: Any, *_: Any) -> None:
    """Count a step of any optimizer but those that count by themselves."""
    if getattr(optimizer, "_reducer", None) is None:
        counters.step()


if "GORUN_SPARE" in os.environ:
    basics.init()  # wait for a world here: init_process_group() begins with the environment
loaders.count_torch()
# Since torch 2. In torch 1.13 the package does not show its module.
_hook = getattr(importlib.import_module("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
if _hook is not None:
    _hook(_stepped)

# Before torch 2, a backend serves every device.
_DEVICES = {"devices": devices()} if is_version_greater_equal_than(torch.__version__, "2.0") else {}
dist.Backend.register_backend("gorun", _create, **_DEVICES)
# torch's flight recorder reads groups made in C++, and would fail on others without this mark.
getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("gorun")
