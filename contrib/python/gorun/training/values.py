"""Collectives for plain values, as Keras scripts call them: numbers and arrays in, NumPy out."""

from __future__ import annotations

from typing import Any

import gorun.numpy as front
from gorun.collectives import Average


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
) -> Any:
    """Return the average (or op) of all ranks' values."""
    return front.allreduce(
        value, average, name, op, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Return all ranks' values joined along the first dimension, in which they may differ."""
    return front.allgather(value, name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value."""
    return front.broadcast(value, root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Return this rank's rows of the average (or sum) of all ranks' values."""
    return front.reducescatter(value, name, op)
