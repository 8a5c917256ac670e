"""Loads a saved model whose optimizer becomes a DistributedOptimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def load(
    keras: Any, wrap: Callable[[Any], Any], filepath: Any, custom_optimizers: Iterable[type] | None,
    custom_objects: dict[str, Any] | None,
) -> Any:  # fmt: skip
    """Load a model and wrap its optimizer, with the state that was saved."""
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = wrap(model.optimizer)
        model.train_function = None
    return model
