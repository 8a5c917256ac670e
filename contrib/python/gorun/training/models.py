"""What differs between Keras 2 and Keras 3 and its backends: variables, and where a model keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gorun import basics, collectives
from gorun.numpy import _Numpy
from gorun.process_sets import ProcessSet, global_process_set


def read(variable: Any) -> np.ndarray:
    """Return a copy of a variable."""
    value = variable.detach().cpu() if hasattr(variable, "detach") else variable
    return np.array(value.numpy())


def write(variable: Any, value: Any) -> None:
    """Overwrite a variable."""
    variable.assign(value)


def settled(model: Any) -> None:
    """Let a model's variables be what they are: the JAX backend keeps them elsewhere during training."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()


def stepping(optimizer: Any) -> Any:
    """Return the optimizer that takes the steps: the one in a LossScaleOptimizer, or the given one."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def optimizer_variables(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer; older ones have a method for them."""
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def broadcast(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrite variables with the values of rank root_rank."""
    if process_set.size() == 1:
        return
    arrays = [read(variable) for variable in variables]
    collectives.broadcast_all(_Numpy(), arrays, root_rank, process_set)
    if basics.rank() != root_rank:
        for variable, value in zip(variables, arrays):
            write(variable, value)
