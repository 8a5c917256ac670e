"""Broadcasts of variables and objects, and the gathering of objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

from gorun import objects
from gorun.process_sets import ProcessSet, global_process_set
from gorun.tensorflow import mpi_ops
from gorun.tensorflow.gradients import tensorflow_variable

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]

# Many variables are sent as one, so many bytes at a time, to bound the shared memory.
_BATCH_BYTES = 16 << 20


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrite variables with the values of rank root_rank. In a graph, return the operation that does.

    inplace is Horovod's: there is one way here.
    """
    batches: list[list[Any]] = []
    room = 0
    for variable in [*map(tensorflow_variable, variables)]:
        size = (variable.shape.num_elements() or 0) * variable.dtype.size
        if size > room or not batches:
            batches.append([])
            room = _BATCH_BYTES
        batches[-1].append(variable)
        room -= size
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
