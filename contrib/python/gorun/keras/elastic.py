"""Elastic training with Keras: the state, its callbacks, and the decorator of the training function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from gorun import elastic
from gorun.training import mixins
from gorun.training.state import KerasState

__all__ = [
    "CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run",
]  # fmt: skip


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a State."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from gorun.tensorflow.elastic import run

        return run(func)
    if backend == "jax":
        from gorun.jax.elastic import run as run_jax

        return run_jax(func)
    return elastic.run(func)


class CommitStateCallback(mixins.CommitState, keras.callbacks.Callback):
    """Commits a state after so many batches, and after each epoch."""


class UpdateBatchStateCallback(mixins.UpdateBatchState, keras.callbacks.Callback):
    """Keeps the number of the batch in state.batch, 0 between epochs."""


class UpdateEpochStateCallback(mixins.UpdateEpochState, keras.callbacks.Callback):
    """Keeps the number of epochs done in state.epoch, over all worlds."""
