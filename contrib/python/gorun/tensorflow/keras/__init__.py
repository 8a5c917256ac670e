"""Horovod's API for tf.keras on gorun's engine: import gorun.tensorflow.keras as hvd.

tf.keras is Keras 3 from TensorFlow 2.16 on, Keras 2 before and with TF_USE_LEGACY_KERAS=1.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorun import __version__
from gorun.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from gorun.collectives import Adasum, Average, Sum
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from gorun.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from gorun.tensorflow.compression import Compression
from gorun.tensorflow.keras import callbacks, elastic
from gorun.tensorflow.mpi_ops import init
from gorun.tensorflow.variables import broadcast_global_variables
from gorun.training import values as _values
from gorun.training.loading import load as _load
from gorun.training.optimizer import create as _create
from gorun.training.options import check_groups, variables_of
from gorun.training.values import allgather, broadcast, reducescatter

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError",
    "HostsUpdatedInterrupt", "PartialDistributedOptimizer", "ProcessSet", "Sum", "__version__",
    "add_process_set", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "callbacks",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set",
    "gloo_built", "gloo_enabled", "init", "is_initialized", "load_model", "local_rank", "local_size",
    "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "reducescatter",
    "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip


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


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return DistributedOptimizer() that leaves the gradients of some layers to each rank."""
    made = DistributedOptimizer(
        optimizer, name, compression=compression, sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor, op=op, groups=groups, process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )  # fmt: skip
    for variable in variables_of(local_layers):
        made.register_local_var(variable)
    return made


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a saved model; its optimizer, with the state that was saved, becomes a DistributedOptimizer."""

    def wrap(optimizer: Any) -> Any:
        return DistributedOptimizer(optimizer, compression=compression)

    return _load(tf.keras, wrap, filepath, custom_optimizers, custom_objects)
