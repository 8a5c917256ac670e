"""Collectives for plain values, as Keras scripts call them: numbers and arrays in, NumPy out.

Where Keras runs on TensorFlow, eager tensors come out.
"""

from __future__ import annotations

from typing import Any, Callable

import gorun.numpy as front
from gorun.collectives import Average

tensor: Callable[[Any], Any] = lambda value: value  # noqa: E731 (or eager_tensor of TensorFlow)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
) -> Any:
    """Return the average (or op) of all ranks' values."""
    scale = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return tensor(front.allreduce(tensor(value), average, name, op, **scale))


def allgather(value: Any, name: str | None = None) -> Any:
    """Return all ranks' values joined along the first dimension, in which they may differ."""
    return tensor(front.allgather(tensor(value), name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value."""
    return tensor(front.broadcast(tensor(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Return this rank's rows of the average (or sum) of all ranks' values."""
    return tensor(front.reducescatter(tensor(value), name, op))
