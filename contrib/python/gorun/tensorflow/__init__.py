"""Horovod's TensorFlow API on gorun's engine: import gorun.tensorflow as hvd.

Works with TensorFlow 2.15 and everything since, with Keras 2 and 3. The operations are TensorFlow's own kind,
from a library that is loaded from memory; nothing is compiled.
"""

from typing import Any

from gorun import __version__
from gorun.features import check_extension, split_list
from gorun.tensorflow import counting, util
from gorun.tensorflow.compression import Compression
from gorun.tensorflow.functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from gorun.tensorflow.gradients import LocalGradientAggregationHelper
from gorun.tensorflow.mpi_ops import *  # noqa: F403
from gorun.tensorflow.mpi_ops import __all__ as _ops
from gorun.tensorflow.optimizer import DistributedOptimizer
from gorun.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from gorun.tensorflow.util import refs_to_vars, vars_to_refs
from gorun.tensorflow.variables import BroadcastGlobalVariablesHook, broadcast_global_variables

__all__ = [
    "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer",
    "LocalGradientAggregationHelper", "PartialDistributedGradientTape", "__version__", "allgather_object",
    "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables",
    "check_extension", "refs_to_vars", "split_list", "vars_to_refs",
]  # fmt: skip
__all__ += _ops

counting.count()


def __getattr__(name: str) -> Any:
    # What needs Keras comes when it is asked for: Keras takes as long to load as all the rest.
    if name == "SyncBatchNormalization":
        from gorun.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name in ("elastic", "keras"):
        import importlib

        return importlib.import_module(f"gorun.tensorflow.{name}")
    if name in ("_cache", "_executing_eagerly", "_make_subgraph"):
        return getattr(util, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
