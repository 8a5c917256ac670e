"""The broadcast of all variables of a graph of TensorFlow 1, and plain values as tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorun.tensorflow.functions import broadcast_variables

_EAGER = (
    "hvd.broadcast_global_variables() does not support eager execution. Please use "
    "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
)


def eager_tensor(value: Any) -> Any:
    """Return a value as a tensor, or as it is while a graph is made."""
    return tf.convert_to_tensor(value) if tf.executing_eagerly() else value


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation that overwrites all variables of the graph with the values of rank root_rank."""
    if tf.executing_eagerly():
        raise RuntimeError(_EAGER)
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Overwrites all variables with the root's when a tf.compat.v1 session begins."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op: Any = None
        self.device = device

    def begin(self) -> None:
        """Make the operation, once for each graph."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run it."""
        session.run(self.bcast_op)
