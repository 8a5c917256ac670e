"""Callbacks for tf.keras."""

from __future__ import annotations

import tensorflow as tf

from gorun.training import mixins

__all__ = [
    "BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
    "LearningRateWarmupCallback", "MetricAverageCallback",
]  # fmt: skip


class BroadcastGlobalVariablesCallback(mixins.BroadcastGlobalVariables, tf.keras.callbacks.Callback):
    """Overwrites all variables with the root's when training begins."""


class MetricAverageCallback(mixins.MetricAverage, tf.keras.callbacks.Callback):
    """Averages the metrics of an epoch over the ranks, for the callbacks behind it in the list."""


class LearningRateScheduleCallback(mixins.LearningRateSchedule, tf.keras.callbacks.Callback):
    """Sets the learning rate to initial_lr * multiplier from epoch to epoch, or from batch to batch."""


class LearningRateWarmupCallback(mixins.LearningRateWarmup, tf.keras.callbacks.Callback):
    """Raises the learning rate from initial_lr / size() to initial_lr in the first epochs."""


class BestModelCheckpoint(mixins.BestModel, tf.keras.callbacks.ModelCheckpoint):
    """ModelCheckpoint of the best model; its filepath is set later."""
