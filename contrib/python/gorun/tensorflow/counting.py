"""Counting steps and waits for data in graphs: a tf.function, as of Keras' fit(), runs without Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gorun import basics, loaders
from gorun.counters import LOADED, LOADS, STEP, counters
from gorun.tensorflow import engine


def step(grads: list[Any], alone: bool) -> None:
    """Count a step whenever the first of the gradients is used.

    The graph of a rank that is alone counts none, so that XLA can compile it.
    """
    if tf.executing_eagerly():
        counters.step()
    if tf.executing_eagerly() or alone:
        return
    for i, grad in enumerate(grads):
        if grad is not None:
            with tf.control_dependencies([engine.current().count(STEP)]):
                grads[i] = tf.nest.map_structure(tf.identity, grad, expand_composites=True)
            return


def _read(following: Callable[[Any], Any], iterator: Any) -> Any:
    """Read an element in a graph, between two operations that count."""
    if not basics.is_initialized():
        return following(iterator)
    events = engine.current()
    with tf.control_dependencies([events.count(LOADS)]):
        item = following(iterator)
    with tf.control_dependencies(tf.nest.flatten(item, expand_composites=True)):
        events.count(LOADED)
    return item


def count() -> None:
    """Count the time in every iterator of tf.data, in graphs too."""
    loaders.read_in_graph = _read
    loaders.count_tensorflow()
