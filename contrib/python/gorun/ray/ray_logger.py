"""What rank 0 reports to the callbacks of run(), while the function runs."""

from __future__ import annotations

import os
from typing import Any

_queue: Any = None


def configure(queue: Any) -> None:
    """Send what log() gets to a queue of Ray."""
    global _queue
    _queue = queue


def log(info_dict: dict[str, Any]) -> None:
    """Pass something to the callbacks: rank 0 does so, and others do nothing."""
    if _queue is None:
        raise ValueError("log: run() was not given any callbacks")
    from gorun import basics

    first = basics.rank() == 0 if basics.is_initialized() else os.environ.get("HOROVOD_RANK") == "0"
    if first:
        _queue.put(info_dict)
