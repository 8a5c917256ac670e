"""DistributedGradientTape: a tf.GradientTape whose gradients are reduced over the ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorun.collectives import Average
from gorun.process_sets import ProcessSet, global_process_set
from gorun.tensorflow.compression import Compression
from gorun.tensorflow.gradients import Reduction
from gorun.training.options import check_groups, variables_of


class _Distributed:
    """What DistributedGradientTape() adds to the class of a tape."""

    _reduction: Reduction
    process_set: ProcessSet
    scale_local_gradients: bool

    def register_local_source(self, source: Any) -> None:
        """Leave the gradients of a variable to this rank."""
        self._reduction.keep_local(source)

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Return the gradients over all ranks, in the structure of sources."""
        grads = super().gradient(target, sources, output_gradients, **kwargs)  # type: ignore[misc]
        flat = tf.nest.flatten(sources)
        reduced = self._reduction(_flat_like(sources, grads), flat, use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """Return pairs of source and gradient: for local sources, and over all ranks."""
        grads = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(tf.nest.flatten(sources), _flat_like(sources, grads)))
        local = [pair for pair in pairs if self._reduction.is_local(pair[0])]
        return local, [pair for pair in pairs if not self._reduction.is_local(pair[0])]


def _flat_like(sources: Any, grads: Any) -> list[Any]:
    """Return the gradients of sources as a list. IndexedSlices are one gradient, not several tensors."""
    if not tf.nest.is_nested(sources):
        return [grads]
    return [leaf for part in _parts(sources, grads) for leaf in part]


def _parts(sources: Any, grads: Any) -> list[list[Any]]:
    if isinstance(sources, dict):
        return [_flat_like(sources[name], grads[name]) for name in sorted(sources)]
    return [_flat_like(source, grad) for source, grad in zip(sources, grads)]


def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return the tape, whose gradient() now reduces over the ranks.

    compression: Compression.none, .fp16, .bf16 or a Compressor.
    sparse_as_dense: reduce IndexedSlices as dense tensors.
    gradient_predivide_factor: for Average, divide by this before adding up, and by the rest after it.
    groups: a number of groups, or lists of variables; a group is reduced as one. num_groups is its old name.
    scale_local_gradients: divide the gradients of local sources by the number of ranks.
    """
    groups = check_groups(num_groups, groups, gradient_predivide_factor, op)
    base = type(gradtape)
    if not issubclass(base, _Distributed):
        gradtape.__class__ = type(base.__name__, (_Distributed, base), {"__module__": base.__module__})
    tape: Any = gradtape
    tape._reduction = Reduction(
        "DistributedGradientTape", compression, sparse_as_dense, op, gradient_predivide_factor, groups,
        process_set, scale_local_gradients,
    )  # fmt: skip
    tape.process_set = process_set
    tape.scale_local_gradients = scale_local_gradients
    return tape


def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return DistributedGradientTape() that leaves the gradients of some layers to each rank."""
    tape = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
        num_groups, groups, process_set, scale_local_gradients,
    )  # fmt: skip
    for variable in variables_of(local_layers):
        tape.register_local_source(variable)
    return tape
