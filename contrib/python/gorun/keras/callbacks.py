"""Callbacks for Keras, on any backend."""

from __future__ import annotations

from typing import Any

import keras

from gorun.training import mixins

__all__ = [
    "BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
    "LearningRateWarmupCallback", "MetricAverageCallback",
]  # fmt: skip


class BroadcastGlobalVariablesCallback(mixins.BroadcastGlobalVariables, keras.callbacks.Callback):
    """Overwrites all variables with the root's when training begins."""


class MetricAverageCallback(mixins.MetricAverage, keras.callbacks.Callback):
    """Averages the metrics of an epoch over the ranks, for the callbacks behind it in the list."""


class LearningRateScheduleCallback(mixins.LearningRateSchedule, keras.callbacks.Callback):
    """Sets the learning rate to initial_lr * multiplier from epoch to epoch, or from batch to batch."""


class LearningRateWarmupCallback(mixins.LearningRateWarmup, keras.callbacks.Callback):
    """Raises the learning rate from initial_lr / size() to initial_lr in the first epochs."""


class BestModelCheckpoint(mixins.BestModel, keras.callbacks.ModelCheckpoint):
    """ModelCheckpoint of the best model; its filepath is set later."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        save_weights_only: bool = False,
    ) -> None:
        super().__init__(monitor, verbose, save_weights_only, mode, save_freq)
