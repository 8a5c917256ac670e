"""Collectives for JAX arrays.

A collective on concrete arrays runs at once, by gorun.numpy. Under jit and grad it becomes part of the
compiled program (compiled.py). Every array argument may be a tree of arrays; the result is such a tree then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gorun import basics
from gorun import numpy as eager
from gorun.collectives import Adasum, Average, choose_op
from gorun.counters import counters
from gorun.jax.compiled import Call, call, named
from gorun.jax.compression import Compression
from gorun.process_sets import ProcessSet, global_process_set

UNEVEN = "alltoall: splits cannot be given inside of jit, where the number of rows must be known"


def _leaves(tree: Any) -> tuple[list[jax.Array], Any]:
    basics.world()  # raises in a child of fork, where JAX would wait for its parent's threads
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return [jnp.asarray(leaf) for leaf in leaves], structure


def _traced(leaves: Sequence[Any]) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _by_type(leaves: Sequence[jax.Array], op: int) -> list[list[int]]:
    """Return which arrays travel as one: all of a type; by Adasum, which weighs them, each alone."""
    groups: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        groups.setdefault(i if op == Adasum else leaf.dtype, []).append(i)
    return list(groups.values())


def _reduce(leaves: Sequence[jax.Array], name: str | None, how: dict[str, Any], kind: str) -> list[jax.Array]:
    if not leaves:
        return []
    process_set = how["process_set"]
    if not _traced(leaves):
        if how.get("step"):
            counters.step()
        options = {
            "op": how["op"], "name": name, "prescale_factor": how["prescale"],
            "postscale_factor": how["postscale"], "process_set": process_set,
        }  # fmt: skip
        arrays = [np.asarray(leaf) for leaf in leaves]
        if kind == "allreduce" and len(arrays) == 1:
            return [jnp.asarray(eager.allreduce(arrays[0], **options))]
        return [jnp.asarray(array) for array in eager.grouped_allreduce(arrays, **options)]
    name = named(kind, name, process_set)
    results: list[Any] = [None] * len(leaves)
    for number, members in enumerate(_by_type(leaves, how["op"])):
        one = Call("allreduce", f"{name}.part{number}" if number else name, **how)
        how = {**how, "step": False}
        for i, result in zip(members, call(one, [leaves[i] for i in members])):
            results[i] = result
    return results


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce an array, or a tree of arrays, over all ranks and return the average (or op).

    All ranks pass the same types and shapes.
    """
    how = {"prescale": prescale_factor, "postscale": postscale_factor, "process_set": process_set}
    return reduce_tree(tensor, name, compression, op=choose_op(average, op), **how)


def reduce_tree(tensor: Any, name: str | None, compression: Any, **how: Any) -> Any:
    """Return allreduce() of a tree; how are fields of Call, among them whether that is a step."""
    leaves, structure = _leaves(tensor)
    compressed = [compression.compress(leaf) for leaf in leaves]
    reduced = _reduce([array for array, _ in compressed], name, how, "allreduce")
    results = [compression.decompress(array, ctx) for array, (_, ctx) in zip(reduced, compressed)]
    return jax.tree_util.tree_unflatten(structure, results)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduce each array over all ranks; return the averages (or op) in order. All succeed or all fail."""
    return allreduce(
        list(tensors), average, name, compression, op, prescale_factor, postscale_factor, process_set
    )


def _each(
    tensor: Any,
    name: str | None,
    now: Callable[..., Any],
    options: dict[str, Any],
    traced: Callable[..., Call],
) -> Any:
    """Do an operation on each array of a tree."""
    leaves, structure = _leaves(tensor)
    results = []
    for i, leaf in enumerate(leaves):
        member = name if name is None or len(leaves) == 1 else f"{name}_{i + 1}of{len(leaves)}"
        if _traced([leaf]):
            results += call(traced(member), [leaf])
        else:
            results.append(jnp.asarray(now(np.asarray(leaf), name=member, **options)))
    return jax.tree_util.tree_unflatten(structure, results)


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Join the arrays of all ranks along the first dimension.

    Ranks may pass different numbers of rows outside of jit; inside of it they pass the same number.
    """
    return _each(
        tensor, name, eager.allgather, {"process_set": process_set},
        lambda member: Call("allgather", named("allgather", member, process_set), process_set),
    )  # fmt: skip


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return allgather() of each array."""
    return allgather(list(tensors), name, process_set)


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's array or tree of arrays; ValueError if root_rank is not in the process set.

    root_rank is a rank of the whole world, also in a process set.
    """
    if root_rank not in process_set.members():
        raise ValueError(f"Root rank {root_rank} is not one of the {process_set.size()} ranks taking part.")
    return _each(
        tensor, name, eager.broadcast, {"root_rank": root_rank, "process_set": process_set},
        lambda own: Call("broadcast", named("broadcast", own, process_set), process_set, root=root_rank),
    )  # fmt: skip


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send splits[i] rows of an array to rank i, and return the rows that the ranks sent to this one.

    Without splits every rank gets the same number of rows. With splits, which only work outside of jit, the
    result is a pair: the rows, in rank order, and how many came from each rank.
    """
    if splits is None:
        return _each(
            tensor, name, eager.alltoall, {"process_set": process_set},
            lambda member: Call("alltoall", named("alltoall", member, process_set), process_set),
        )  # fmt: skip
    if _traced([tensor, splits]):
        raise ValueError(UNEVEN)
    rows, counts = eager.alltoall(np.asarray(tensor), np.asarray(splits).tolist(), name, process_set)
    return jnp.asarray(rows), jnp.asarray(counts)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce an array over all ranks, and return this rank's rows of the average (or sum).

    Ranks get equal shares of the rows, in rank order. If the rows do not divide evenly, each of the first
    ranks gets one more.
    """
    options = {
        "op": op, "process_set": process_set, "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
    }  # fmt: skip
    leaves, structure = _leaves(tensor)
    compressed = [compression.compress(leaf) for leaf in leaves]
    reduced = _each(
        [array for array, _ in compressed], name, eager.reducescatter, options,
        lambda member: Call(
            "reducescatter", named("reducescatter", member, process_set), process_set, op, prescale_factor,
            postscale_factor,
        ),
    )  # fmt: skip
    results = [compression.decompress(array, ctx) for array, (_, ctx) in zip(reduced, compressed)]
    return jax.tree_util.tree_unflatten(structure, results)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Return reducescatter() of each array."""
    return reducescatter(list(tensors), name, compression, op, process_set, prescale_factor, postscale_factor)
