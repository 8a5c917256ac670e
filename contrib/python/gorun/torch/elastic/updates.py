"""Tells Steps of the updates of a DistributedOptimizer, or of a plain one whose gradients DDP sums.

DDP's backward() returns when the sums of all gradients have arrived, or raises an error.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable

import torch

from gorun.torch.optimizer import _DistributedOptimizer

if TYPE_CHECKING:
    from gorun.torch.elastic.steps import Steps


class Sums:
    """Counts the sums over all ranks that torch.distributed has begun in this process."""

    begun = 0


def by_ddp(optimizer: torch.optim.Optimizer) -> bool:
    """Report whether somebody else than the optimizer sums its gradients."""
    return not isinstance(optimizer, _DistributedOptimizer)


def watch(optimizer: torch.optim.Optimizer, steps: Steps) -> None:
    """Have steps decide about each update, and hear of it."""
    optimizer._watch = weakref.ref(steps)  # type: ignore[attr-defined]
    if by_ddp(optimizer) and not hasattr(optimizer.step, "_watched"):
        # A method, as learning rate schedulers expect that wrap it again.
        optimizer.step = types.MethodType(_watched(optimizer.step), optimizer)  # type: ignore[method-assign]


def _watched(step: Callable[..., Any]) -> Callable[..., Any]:
    before = Sums.begun

    @functools.wraps(getattr(step, "__func__", step))
    def watched(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal before
        steps, result = optimizer._watch(), None
        closure = args[0] if args else kwargs.get("closure")
        summed, before = Sums.begun > before, Sums.begun
        if steps is None or steps.before_update(closure is not None, summed):
            result = step(*args, **kwargs)
        if steps is not None:
            steps.after_update()
        return result

    watched._watched = True  # type: ignore[attr-defined]
    return watched


def forget(optimizer: torch.optim.Optimizer) -> None:
    """Forget the gradients of the current step."""
    if isinstance(optimizer, _DistributedOptimizer):
        optimizer._forget()
