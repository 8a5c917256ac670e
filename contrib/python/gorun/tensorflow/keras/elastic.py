"""Elastic training with tf.keras: the state, its callbacks, and the decorator of the training function."""

from __future__ import annotations

import tensorflow as tf

from gorun.tensorflow.elastic import run
from gorun.training import mixins
from gorun.training.state import KerasState

__all__ = [
    "CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run",
]  # fmt: skip


class CommitStateCallback(mixins.CommitState, tf.keras.callbacks.Callback):
    """Commits a state after so many batches, and after each epoch."""


class UpdateBatchStateCallback(mixins.UpdateBatchState, tf.keras.callbacks.Callback):
    """Keeps the number of the batch in state.batch, 0 between epochs."""


class UpdateEpochStateCallback(mixins.UpdateEpochState, tf.keras.callbacks.Callback):
    """Keeps the number of epochs done in state.epoch, over all worlds."""
