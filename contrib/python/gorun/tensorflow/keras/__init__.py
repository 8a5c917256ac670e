"""Horovod's API for tf.keras on gorun's engine: import gorun.tensorflow.keras as hvd.

tf.keras is Keras 3 from TensorFlow 2.16 on, Keras 2 before and with TF_USE_LEGACY_KERAS=1.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorun import __version__
from gorun.collectives import Average
from gorun.process_sets import ProcessSet, global_process_set
from gorun.tensorflow.compression import Compression
from gorun.tensorflow.keras import callbacks, elastic
from gorun.tensorflow.mpi_ops import init
from gorun.tensorflow.variables import broadcast_global_variables, eager_tensor
from gorun.training import values as _values
from gorun.training.front import *  # noqa: F403
from gorun.training.front import __all__ as _front
from gorun.training.loading import load as _load
from gorun.training.optimizer import create as _create
from gorun.training.options import check_groups

__all__ = [
    "Compression", "DistributedOptimizer", "__version__", "allreduce", "broadcast_global_variables",
    "callbacks", "elastic", "init", "load_model",
]  # fmt: skip
__all__ += _front
_values.tensor = eager_tensor


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Return the average (or op) of all ranks' values. compression is for gradients."""
    return _values.allreduce(value, name, average, prescale_factor, postscale_factor, op)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return what DistributedOptimizer() of gorun.keras does; Horovod has arguments in another order here."""
    groups = check_groups(num_groups, groups, gradient_predivide_factor, op)
    return _create(
        optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op,
        backward_passes_per_step, average_aggregated_gradients, groups, process_set, scale_local_gradients,
    )  # fmt: skip


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a saved model; its optimizer, with the state that was saved, becomes a DistributedOptimizer."""
    return _load(tf.keras, filepath, custom_optimizers, custom_objects, compression)
