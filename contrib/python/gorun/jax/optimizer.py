"""Gradients and optimizers of optax whose gradients are reduced over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from gorun.collectives import Adasum, Average
from gorun.jax.compression import Compression
from gorun.jax.ops import reduce_tree
from gorun.layout import dealt
from gorun.process_sets import ProcessSet, global_process_set

BUCKET_BYTES = 32 << 20  # of gradients that are reduced as one, while others are still computed


def reduce_gradients(
    gradients: Any,
    *,
    name: str = "gradients",
    op: int = Average,
    compression: Any = Compression.none,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the average (or op) of all ranks' gradients, a tree of arrays.

    gradient_predivide_factor: for Average, divide by this before adding up, and by the rest after it.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    leaves, structure = jax.tree_util.tree_flatten(gradients)
    # Every rank deals alike, as all have the same model. Adasum weighs each array by itself.
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in leaves]
    results: list[Any] = []
    for number, bucket in enumerate(dealt(sizes, 0 if op == Adasum else BUCKET_BYTES)):
        results += reduce_tree(
            [leaves[i] for i in bucket], f"{name}.{number}", compression, op=op, process_set=process_set,
            step=not number, prescale=1.0 / gradient_predivide_factor, postscale=gradient_predivide_factor,
        )  # fmt: skip
    return jax.tree_util.tree_unflatten(structure, results)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str = "gradients",
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return a transformation of optax that reduces gradients over the ranks and does what optimizer does.

    Its state is the optimizer's own. backward_passes_per_step: calls of update() whose gradients are added up
    before they are reduced; the calls before the last return updates of zero.

    name: of the reductions. Two optimizers in one program have two names.
    """
    try:
        import optax
    except ImportError as error:
        raise ImportError("DistributedOptimizer wraps optimizers of optax: pip install optax") from error
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    inner = optax.with_extra_args_support(optimizer)

    def update(gradients: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        reduced = reduce_gradients(
            gradients, name=name, op=op, compression=compression,
            gradient_predivide_factor=gradient_predivide_factor, process_set=process_set,
        )  # fmt: skip
        return inner.update(reduced, state, params, **extra)

    distributed = optax.GradientTransformationExtraArgs(inner.init, update)
    if backward_passes_per_step == 1:
        return distributed
    steps = optax.MultiSteps(distributed, backward_passes_per_step, use_grad_mean=False)
    return optax.GradientTransformationExtraArgs(steps.init, steps.update)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    name: str = "gradients",
    op: int = Average,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Callable[..., Any]:
    """Return jax.value_and_grad(fun) with gradients reduced over the ranks. The value is this rank's own."""
    local = jax.value_and_grad(fun, argnums, has_aux, **options)

    def reduced(*args: Any, **kwargs: Any) -> Any:
        value, gradients = local(*args, **kwargs)
        return value, reduce_gradients(
            gradients, name=name, op=op, compression=compression, process_set=process_set
        )

    return reduced


def grad(fun: Callable[..., Any], *args: Any, has_aux: bool = False, **options: Any) -> Callable[..., Any]:
    """Return jax.grad(fun) with gradients reduced over the ranks; options are as for value_and_grad()."""
    both = value_and_grad(fun, *args, has_aux=has_aux, **options)

    def reduced(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return reduced
