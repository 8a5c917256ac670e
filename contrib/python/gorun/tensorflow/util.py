"""Helpers that Horovod has by these names, and that programs and its own tests import."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from gorun import features

__all__ = ["refs_to_vars", "vars_to_refs"]

_executing_eagerly = tf.executing_eagerly
_make_subgraph = tf.function


def _cache(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that remembers its results, eagerly and in graphs apart."""
    remembered = features._cache(lambda _, *args: func(*args))
    return lambda *args: remembered(_executing_eagerly(), *args)


def vars_to_refs(vars: Any) -> Any:
    """Return references to variables that can be keys: a tuple for a list."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return the variables of references: a list for a tuple."""
    return list(map(refs_to_vars, refs)) if isinstance(refs, tuple) else refs.deref()
