"""Cleans up after a failed backward().

torch keeps the functions that it did not run in a queue of the thread, and with them their whole graph, until
the thread ends. The main thread ends after Python. Tensors over the arena need Python to be freed, so exit()
would hang.
"""

from __future__ import annotations

import atexit
import contextlib

import torch

# The queue returns the youngest function first, and all functions in it are younger than this one.
with torch.inference_mode(False), torch.enable_grad():
    _oldest_input = torch.zeros((), device="cpu", requires_grad=True)
    _oldest = _oldest_input * 1


def drop() -> None:
    """Empty the queue of this thread: to run the oldest function, torch takes and drops all others."""
    with contextlib.suppress(RuntimeError):  # a fork cannot, once torch has threads of its own
        torch.autograd.grad(_oldest, _oldest_input, retain_graph=True)


atexit.register(drop)
