"""Horovod's Keras API on gorun's engine: import gorun.keras as hvd.

For Keras 3 on TensorFlow, JAX and torch, and for Keras 2.
"""

from __future__ import annotations

from typing import Any

import keras

from gorun import __version__
from gorun.collectives import Average, Sum
from gorun.keras import callbacks, elastic
from gorun.keras.frames import Compression, broadcast_global_variables, init
from gorun.process_sets import ProcessSet, global_process_set
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


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Return the average (or op) of all ranks' values; average=False is op=Sum."""
    if op is None:
        op = Average if average else Sum
    return _values.allreduce(value, name, None, prescale_factor, postscale_factor, op)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like the given one that reduces the gradients over the ranks before each step.

    Its class has the name of the optimizer's class and it shares the optimizer's state: a model is saved as
    if it had the given one.

    compression: Compression.none, .fp16, .bf16 or a Compressor.
    sparse_as_dense: reduce IndexedSlices of TensorFlow as dense tensors.
    gradient_predivide_factor: for Average, divide by this before adding up, and by the rest after it.
    op: Average or Sum.
    groups: on TensorFlow, a number of groups, or lists of variables; a group is reduced as one. num_groups is
    its old name.
    backward_passes_per_step: batches whose gradients are added up before they are reduced; with
    average_aggregated_gradients their average is taken.
    """
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
    return _load(keras, filepath, custom_optimizers, custom_objects, compression)
