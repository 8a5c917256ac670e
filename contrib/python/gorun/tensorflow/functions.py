"""Broadcasts of variables and objects, and the gathering of objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

from gorun import objects
from gorun.collectives import BATCH_BYTES
from gorun.layout import dealt
from gorun.process_sets import ProcessSet, global_process_set
from gorun.tensorflow import mpi_ops
from gorun.tensorflow.gradients import tensorflow_variable

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrite variables with the values of rank root_rank. In a graph, return the operation that does.

    inplace is Horovod's: there is one way here.
    """
    variables = [*map(tensorflow_variable, variables)]
    sizes = [(variable.shape.num_elements() or 0) * variable.dtype.size for variable in variables]
    batches = [[variables[i] for i in batch] for batch in dealt(sizes, BATCH_BYTES)]
    assigned = [mpi_ops.broadcast_(batch, root_rank, process_set=process_set) for batch in batches]
    return None if tf.executing_eagerly() else tf.group(*(op for batch in assigned for op in batch))


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's object on every rank. session is Horovod's: objects need none."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Return broadcast_object() with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return all ranks' objects in rank order. session is Horovod's: objects need none."""
    return objects.allgather_object(obj, name, process_set)
