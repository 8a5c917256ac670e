"""Horovod's API for JAX, on gorun's engine: import gorun.jax as hvd.

Operations work on arrays and on trees of arrays, outside of jit and inside of it, under grad and vmap.
Works with JAX 0.5 and everything since.
"""

from gorun import __version__
from gorun.collectives import *  # noqa: F403
from gorun.collectives import __all__ as _collectives
from gorun.collectives import join
from gorun.common import *  # noqa: F403
from gorun.common import __all__ as _common
from gorun.jax import elastic
from gorun.jax.compiled import init
from gorun.jax.compression import Compression
from gorun.jax.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    broadcast_pytree,
)
from gorun.jax.ops import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from gorun.jax.optimizer import DistributedOptimizer, grad, reduce_gradients, value_and_grad

__all__ = [
    "Compression", "DistributedOptimizer", "__version__", "allgather", "allgather_object", "allreduce",
    "alltoall", "broadcast", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters",
    "broadcast_pytree", "elastic", "grad", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter",
    "init", "join", "reduce_gradients", "reducescatter", "value_and_grad",
]  # fmt: skip
__all__ += _collectives
__all__ += _common
