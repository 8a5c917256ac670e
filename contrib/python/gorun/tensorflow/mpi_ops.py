"""Collectives for TensorFlow tensors, eagerly and in graphs.

All of them are differentiable. Ranks match operations by name. An operation without a name gets one: in a
graph the name of its node, eagerly a number in the order of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gorun import basics, collectives
from gorun.basics import HorovodBasics
from gorun.collectives import Adasum, Average, Max, Min, Product, Sum, barrier, choose_op
from gorun.common import *  # noqa: F403
from gorun.common import __all__ as _common
from gorun.features import (
    check_installed_version,
    get_average_backwards_compatibility_fun,
    get_ext_suffix,
    gpu_available,
    num_rank_is_power_2,
)
from gorun.process_sets import ProcessSet, global_process_set
from gorun.tensorflow import engine
from gorun.tensorflow.compression import Compression
from gorun.tensorflow.failures import translate

__all__ = [
    "HorovodBasics", "Max", "Min", "Product", "allgather", "allreduce", "alltoall", "barrier", "broadcast",
    "broadcast_", "check_installed_version", "check_num_rank_power_of_2",
    "get_average_backwards_compatibility_fun", "get_ext_suffix", "gpu_available", "grouped_allgather",
    "grouped_allreduce", "grouped_reducescatter", "handle_average_backwards_compatibility", "init", "join",
    "local_rank_op", "local_size_op", "num_rank_is_power_2", "process_set_included_op", "rank_op",
    "reducescatter", "size_op",
]  # fmt: skip
__all__ += _common

_basics = HorovodBasics()  # programs look up the functions above in it
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(collectives)
check_num_rank_power_of_2 = num_rank_is_power_2


def init(comm: Sequence[int] | None = None, process_sets: Any = None) -> None:
    """Join the job; a second call does nothing. Without gorun this process is a world of one.

    comm is None or lists all ranks; pass process_sets to use some of them. Raises ValueError if joining
    fails.
    """
    basics.init(comm, process_sets)
    engine.current()  # now, as graphs made for an earlier world do not look for it


def _named(kind: str, name: str | None, tensors: Sequence[Any]) -> str | None:
    """Return the name of an operation: in a graph, one made of its tensors' names."""
    if name is not None:
        return re.sub(r"[^a-zA-Z0-9_.\-/]", "_", name)
    if tf.executing_eagerly():
        return None
    ends = [tensors[0]] if len(tensors) == 1 else [tensors[0], tensors[-1]]
    return "_".join([f"Horovod{kind}", *(re.sub(r"[^a-zA-Z0-9_]", "_", tensor.name) for tensor in ends)])


def _tensors(values: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(value) for value in values]


def _check_op(op: int, process_set: ProcessSet) -> None:
    if op == Adasum and process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if op not in (Average, Sum, Adasum, Min, Max, Product):
        raise ValueError(f"unknown reduction {op}")


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduce a tensor over all ranks and return the average (or op); IndexedSlices stay IndexedSlices.

    All ranks pass the same type and shape. The work is done on the CPU: device_dense and device_sparse have
    no effect.
    """
    op = choose_op(average, op)
    return _reduced(
        [tensor], name, op, prescale_factor, postscale_factor, process_set, ignore_name_scope, compression
    )[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduce each tensor over all ranks; return the averages (or op) in order. All succeed or all fail."""
    op = choose_op(average, op)
    return _reduced(  # fmt: skip
        list(tensors), name, op, prescale_factor, postscale_factor, process_set, ignore_name_scope,
        compression,
    )


def _reduced(
    tensors: Sequence[Any], name: str | None, op: int, prescale: float, postscale: float,
    process_set: ProcessSet, ignore_name_scope: bool, compression: Any,
) -> list[Any]:  # fmt: skip
    """Reduce tensors, the dense ones together."""
    _check_op(op, process_set)
    results: list[Any] = [None] * len(tensors)
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    for i, tensor in enumerate(tensors):
        if i not in dense:
            if prescale != 1.0 or postscale != 1.0:
                raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")
            results[i] = _sparse(tensor, op, process_set, ignore_name_scope)
    if dense:
        compressed, contexts = zip(*(compression.compress(tf.convert_to_tensor(tensors[i])) for i in dense))
        kind = "Allreduce" if len(tensors) == 1 else "GroupedAllreduce"
        with translate(process_set):
            reduced = engine.current().allreduce(
                list(compressed), _named(kind, name, compressed), not ignore_name_scope, process_set, op,
                prescale, postscale,
            )  # fmt: skip
        for i, tensor, ctx in zip(dense, reduced, contexts):
            results[i] = compression.decompress(tensor, ctx)
    return results


def _sparse(slices: Any, op: int, process_set: ProcessSet, ignore_name_scope: bool) -> Any:
    """Return the sum or the average of IndexedSlices: all ranks' slices."""
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround please pass "
            "sparse_as_dense=True to DistributedOptimizer"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    values, indices = grouped_allgather(
        [slices.values, slices.indices], ignore_name_scope=ignore_name_scope, process_set=process_set
    )
    if op == Average:
        values /= tf.cast(engine.current().ask(engine.SIZE, process_set), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Join the tensors of all ranks along the first dimension; only that dimension may differ."""
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return allgather() of each tensor."""
    tensors = _tensors(tensors)
    kind = "Allgather" if len(tensors) == 1 else "GroupedAllgather"
    with translate(process_set):
        return list(
            engine.current().allgather(
                tensors, _named(kind, name, tensors), not ignore_name_scope, process_set
            )[0]
        )


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's tensor. root_rank is a rank of the whole world, also in a process set."""
    tensors = _tensors([tensor])
    with translate(process_set):
        return engine.current().broadcast(
            tensors, _named("Broadcast", name, tensors), not ignore_name_scope, process_set, int(root_rank)
        )[0]


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrite variables with the root's, in one operation, and return them (in a graph: their values)."""
    variables = list(variables)
    if not variables:
        return []
    tensors = _tensors(variables)
    with translate(process_set):
        values = engine.current().broadcast(
            tensors, _named("BroadcastInplace", name, tensors), True, process_set, int(root_rank)
        )
    assigned = [variable.assign(value) for variable, value in zip(variables, values)]
    return variables if tf.executing_eagerly() else assigned


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send splits[i] rows of a tensor to rank i, and return the rows that the ranks sent to this one.

    Without splits every rank gets the same number of rows. With splits the result is a pair: the rows, in
    rank order, and how many came from each rank.
    """
    tensor = tf.convert_to_tensor(tensor)
    given = tf.constant([], tf.int32) if splits is None else tf.convert_to_tensor(splits)
    if given.dtype != tf.int32:
        raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
    with translate(process_set):
        rows, received = engine.current().alltoall(
            tensor, given, _named("Alltoall", name, [tensor]), not ignore_name_scope, process_set
        )
    return rows if splits is None else (rows, received)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce a tensor over all ranks, and return this rank's rows of the average (or sum).

    Ranks get equal shares of the rows, in rank order. If the rows do not divide evenly, each of the first
    ranks gets one more.
    """
    return _scattered(
        [tensor], compression, op, name, process_set, ignore_name_scope, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Return reducescatter() of each tensor."""
    return _scattered(
        list(tensors), compression, op, None, process_set, False, prescale_factor, postscale_factor
    )


def _scattered(
    tensors: Sequence[Any], compression: Any, op: int, name: str | None, process_set: ProcessSet,
    ignore_name_scope: bool, prescale: float, postscale: float,
) -> list[Any]:  # fmt: skip
    if op not in (Average, Sum):
        raise NotImplementedError("Reducescatter currently only supports AVERAGE and SUM.")
    if not tensors:
        return []
    compressed, contexts = zip(*map(compression.compress, _tensors(tensors)))
    kind = "Reducescatter" if len(tensors) == 1 else "GroupedReducescatter"
    with translate(process_set):
        results = engine.current().reducescatter(
            list(compressed), _named(kind, name, compressed), not ignore_name_scope, process_set, op,
            prescale, postscale,
        )  # fmt: skip
    return [compression.decompress(result, ctx) for result, ctx in zip(results, contexts)]


def join() -> Any:
    """Declare that this rank has no more data. Wait until all ranks have joined; return the last one.

    Until then this rank contributes zeros to the allreduces of the others, and averages still divide by the
    number of all ranks.
    """
    if tf.executing_eagerly():
        return tf.constant(collectives.join())

    def run() -> Any:
        import numpy as np

        return np.int32(collectives.join())

    last = tf.numpy_function(run, [], tf.int32)
    last.set_shape(())
    return last


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks of a process set as a tensor, asked anew whenever a graph runs."""
    return engine.current().ask(engine.SIZE, engine.set_of(process_set_id), name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 if this rank is in a process set, else 0, as a tensor, asked anew whenever a graph runs."""
    return engine.current().ask(engine.INCLUDED, engine.set_of(process_set_id), name)


def local_size_op(name: str | None = None) -> Any:
    """Return the number of ranks of this host as a tensor, asked anew whenever a graph runs."""
    return engine.current().ask(engine.LOCAL_SIZE, global_process_set, name)


def rank_op(name: str | None = None) -> Any:
    """Return this rank's number as a tensor, asked anew whenever a graph runs."""
    return engine.current().ask(engine.RANK, global_process_set, name)


def local_rank_op(name: str | None = None) -> Any:
    """Return this rank's number on its host as a tensor, asked anew whenever a graph runs."""
    return engine.current().ask(engine.LOCAL_RANK, global_process_set, name)
