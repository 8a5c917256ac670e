"""Horovod's API for JAX, on gorun's engine: import gorun.jax as hvd.

Operations work on arrays and on trees of arrays, outside of jit and inside of it, under grad and vmap.
Works with JAX 0.5 and everything since.
"""

from gorun import __version__
from gorun.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
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
from gorun.collectives import (
    Adasum,
    Average,
    BitAnd,
    BitOr,
    BitXor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Max,
    Min,
    Product,
    Sum,
    barrier,
    join,
)
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt
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
from gorun.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Adasum", "Average", "BitAnd", "BitOr", "BitXor", "Compression", "DistributedOptimizer",
    "HorovodInternalError", "HostsUpdatedInterrupt", "LogicalAnd", "LogicalOr", "LogicalXor", "Max", "Min",
    "ProcessSet", "Product", "Sum", "__version__", "add_process_set", "allgather", "allgather_object",
    "allreduce", "alltoall", "barrier", "broadcast", "broadcast_object", "broadcast_optimizer_state",
    "broadcast_parameters", "broadcast_pytree", "ccl_built", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "grad", "grouped_allgather",
    "grouped_allreduce", "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "join",
    "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank",
    "reduce_gradients", "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size",
    "start_timeline", "stop_timeline", "value_and_grad",
]  # fmt: skip
