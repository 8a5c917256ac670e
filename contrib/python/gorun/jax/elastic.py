"""Elastic training with JAX: its state, and the decorator of the training function."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np

from gorun import basics
from gorun.basics import shutdown
from gorun.elastic import ObjectState, State, run_fn
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from gorun.jax import compiled
from gorun.jax.compiled import init

__all__ = ["JaxState", "ObjectState", "State", "init", "run", "run_fn", "shutdown"]

OTHER_STRUCTURE = "{}: the ranks of this elastic job have states of different structure: {} and {}"


class _Kept:
    """A copy of an array in host memory, which survives when JAX donates the array's buffer."""

    def __init__(self, array: jax.Array) -> None:
        self.value = np.array(array)


def _kept(leaf: Any) -> Any:
    return _Kept(leaf) if isinstance(leaf, jax.Array) else copy.deepcopy(leaf)


def _restored(leaf: Any) -> Any:
    return jnp.array(leaf.value) if isinstance(leaf, _Kept) else copy.deepcopy(leaf)


def _is_leaf(value: Any) -> bool:
    return value is None or isinstance(value, _Kept)


class JaxState(ObjectState):
    """JaxState(params=params, opt_state=opt_state, epoch=0): trees of arrays, and other values.

    Training assigns new values to its attributes: state.params = … . Functions in a tree, as flax's
    TrainState has them, stay each rank's own.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._saved_state = self._copied()

    def _copied(self) -> dict[str, Any]:
        return {name: jax.tree_util.tree_map(_kept, getattr(self, name)) for name in self._saved_state}

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, jax.tree_util.tree_map(_restored, value, is_leaf=_is_leaf))

    def _take_over(self, root: int) -> None:
        for name in self._saved_state:
            leaves, structure = jax.tree_util.tree_flatten(getattr(self, name), is_leaf=_is_leaf)
            sent = [*map(_kept, leaves)] if basics.rank() == root else None
            shape, sent = self._bcast_object((str(structure), sent), root)
            if shape != str(structure):
                raise ValueError(OTHER_STRUCTURE.format(name, shape, structure))
            setattr(self, name, jax.tree_util.tree_unflatten(structure, [*map(_restored, sent)]))


def reset() -> None:
    """Leave this world and join the next. Programs that were compiled for this one are compiled again."""
    jax.clear_caches()
    basics.reset()
    compiled.attach()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a State."""

    @functools.wraps(func)
    def with_errors_of_ranks(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except (HorovodInternalError, HostsUpdatedInterrupt):
            raise
        except Exception as error:  # JAX's own, from a compiled program, is of several types
            failure = compiled.failure_of(error)
            if failure is None:
                raise
            raise failure from failure.__cause__

    return run_fn(with_errors_of_ranks, reset)
