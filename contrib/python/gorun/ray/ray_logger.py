"""What rank 0 reports to the callbacks of run(), while the function runs."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ray.exceptions import RayError

_queue: Any = None
_warned = False


def configure(queue: Any) -> None:
    """Send what log() gets to a queue of Ray."""
    global _queue
    _queue = queue


def log(info_dict: dict[str, Any], chief_only: bool = True) -> None:
    """Pass something to the callbacks of run(): only rank 0 does so, unless chief_only is False."""
    global _warned
    from gorun import basics

    first = basics.rank() == 0 if basics.is_initialized() else os.environ.get("HOROVOD_RANK") == "0"
    if chief_only and not first:
        return
    why = "run() was given no callbacks"
    if _queue is not None:
        try:
            _queue.put(info_dict)
            return
        except RayError as error:
            why = f"a report is lost: {error}"
    if not _warned:
        _warned = True
        warnings.warn(f"log: {why}", stacklevel=2)
