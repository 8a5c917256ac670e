"""What the APIs for Keras and for tf.keras have in common."""

from __future__ import annotations

from typing import Any

from gorun.collectives import Average
from gorun.common import *  # noqa: F403
from gorun.common import __all__ as _common
from gorun.compression import NoneCompressor
from gorun.process_sets import ProcessSet, global_process_set
from gorun.training.optimizer import create
from gorun.training.options import check_groups, variables_of
from gorun.training.values import allgather, broadcast, reducescatter

__all__ = ["PartialDistributedOptimizer", "allgather", "broadcast", "reducescatter"]
__all__ += _common


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return DistributedOptimizer() that leaves the gradients of some layers to each rank."""
    groups = check_groups(0, groups, gradient_predivide_factor, op)
    made = create(
        optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op, 1, False, groups,
        process_set, scale_local_gradients,
    )  # fmt: skip
    for variable in variables_of(local_layers):
        made.register_local_var(variable)
    return made
