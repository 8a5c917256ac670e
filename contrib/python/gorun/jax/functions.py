"""Broadcasts of parameters, of the state of optimizers and of objects."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from gorun import collectives
from gorun.numpy import _Numpy
from gorun.objects import allgather_object, broadcast_object
from gorun.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters",
    "broadcast_pytree",
]  # fmt: skip


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex))


def broadcast_pytree(tree: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """Return a tree with the root's arrays and numbers. Its other leaves are this rank's own.

    All ranks pass trees of the same structure, with arrays of the same types and shapes.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
    arrays = [np.array(leaves[i]) for i in places]  # of this process: JAX's own may not be overwritten
    collectives.broadcast_all(_Numpy(), arrays, root_rank, process_set)
    for i, array in zip(places, arrays):
        own = leaves[i]
        leaves[i] = jax.device_put(array, own.sharding) if isinstance(own, jax.Array) else _like(own, array)
    return jax.tree_util.tree_unflatten(structure, leaves)


def _like(own: Any, array: np.ndarray) -> Any:
    return array if isinstance(own, np.ndarray) else type(own)(array[()])


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's parameters, as broadcast_pytree() does; the caller's arrays do not change."""
    return broadcast_pytree(params, root_rank, process_set)


def broadcast_optimizer_state(
    state: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's optimizer state, as broadcast_pytree() does."""
    return broadcast_pytree(state, root_rank, process_set)
