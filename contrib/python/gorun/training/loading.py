"""Loads a saved model whose optimizer becomes a DistributedOptimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gorun.collectives import Average
from gorun.process_sets import global_process_set
from gorun.training.optimizer import create


def load(
    keras: Any, filepath: Any, custom_optimizers: Iterable[type] | None,
    custom_objects: dict[str, Any] | None, compression: Any,
) -> Any:  # fmt: skip
    """Load a model and wrap its optimizer, with the state that was saved."""
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = create(
            model.optimizer, None, compression, False, 1.0, Average, 1, False, None, global_process_set, True
        )
        model.train_function = None
    return model
