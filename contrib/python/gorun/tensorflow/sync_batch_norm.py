"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorun import basics
from gorun.tensorflow import mpi_ops


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """tf.keras.layers.BatchNormalization with the mean and variance of all ranks' batches together.

    Ranks may have batches of different size. Two collectives forward, and two backward.
    """

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        kwargs["name"] = kwargs.get("name") or "sync_batch_normalization"
        if _KERAS_2:
            kwargs["fused"] = fused
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if basics.size() == 1 and not basics.elastic():
            return mean, variance
        mask = kwargs.get("mask", None if _KERAS_2 or not args else args[0])
        count = tf.size(inputs) if mask is None else tf.math.count_nonzero(mask, dtype=tf.int32)
        share = tf.cast(count, mean.dtype)
        # Moments are combined rather than sums of squares, which would lose precision.
        flat = tf.reshape(mean, [-1])
        sums = mpi_ops.allreduce(tf.concat([[share], share * flat], 0), op=mpi_ops.Sum)
        whole = sums[1:] / sums[0]
        spread = share * (tf.reshape(variance, [-1]) + tf.square(flat - whole))
        whole_variance = mpi_ops.allreduce(spread, op=mpi_ops.Sum) / sums[0]
        return tf.reshape(whole, tf.shape(mean)), tf.reshape(whole_variance, tf.shape(variance))


_KERAS_2 = not hasattr(tf.keras, "ops")
