"""Horovod's PyTorch API on gorun's engine: import gorun.torch as hvd.

Works with torch 1.13 and everything since, on CPU tensors without a copy where it matters (gradients), on
GPU tensors through host memory.
"""

from gorun import __version__, loaders
from gorun.features import check_extension
from gorun.torch import elastic
from gorun.torch.compression import Compression
from gorun.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from gorun.torch.mpi_ops import *  # noqa: F403
from gorun.torch.mpi_ops import __all__ as _ops
from gorun.torch.optimizer import DistributedOptimizer
from gorun.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression", "DistributedOptimizer", "SyncBatchNorm", "__version__", "allgather_object",
    "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "check_extension", "elastic",
]  # fmt: skip
__all__ += _ops

loaders.count_torch()
