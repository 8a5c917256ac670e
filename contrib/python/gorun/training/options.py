"""Arguments that distributed optimizers and tapes have in common."""

from __future__ import annotations

import warnings
from typing import Any

from gorun.collectives import Average

GROUPS = "groups should be a non-negative integer or a list of list of tf.Variable."


def check_groups(num_groups: int, groups: Any, predivide: float, op: int) -> Any:
    """Return the groups of gradients, or raise ValueError for options that exclude each other."""
    if predivide != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        text = "Parameter `num_groups` has been replaced by `groups`."
        warnings.warn(text, DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is not None and not (isinstance(groups, list) or (isinstance(groups, int) and groups > 0)):
        raise ValueError(GROUPS)
    return groups


def variables_of(layers: Any) -> list[Any]:
    """Return the trainable variables of a layer, of several, or of None."""
    if layers is None:
        return []
    layers = layers if isinstance(layers, (list, tuple, set)) else [layers]
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return [variable for layer in layers for variable in layer.trainable_weights]
