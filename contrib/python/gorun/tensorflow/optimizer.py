"""DistributedOptimizer for the optimizers of tf.compat.v1 and of Keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorun.collectives import Adasum, Average
from gorun.process_sets import ProcessSet, global_process_set
from gorun.tensorflow import mpi_ops
from gorun.tensorflow.compression import Compression
from gorun.tensorflow.gradients import LocalGradientAggregationHelper, Reduction
from gorun.training.options import check_groups

_LegacyOptimizer = tf.compat.v1.train.Optimizer


class _Wrapped(_LegacyOptimizer):
    """An optimizer of tf.compat.v1 that delegates to another one."""

    def __init__(self, optimizer: Any, name: str | None, use_locking: bool) -> None:
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of the wrapped optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the wrapped optimizer's variables."""
        return self._optimizer.variables(*args, **kwargs)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return pairs of gradient and variable."""
        return self._optimizer.compute_gradients(*args, **kwargs)


class _DistributedOptimizer(_Wrapped):
    """Reduces the gradients over the ranks when they are computed."""

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, reduction: Reduction, passes: int,
        average: bool, process_set: ProcessSet, scale_local_gradients: bool,
    ) -> None:  # fmt: skip
        super().__init__(optimizer, name, use_locking)
        self._reduction = reduction
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._agg_helper = None
        if passes > 1:
            self._agg_helper = LocalGradientAggregationHelper(
                passes, reduction, False, average, process_set=process_set, name=f"{self._name}_"
            )

    def register_local_var(self, var: Any) -> None:
        """Leave the gradients of a variable to this rank."""
        self._reduction.keep_local(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return pairs of gradient and variable, the gradients over all ranks."""
        grads, variables = zip(*self._optimizer.compute_gradients(*args, **kwargs))
        if self._agg_helper is not None:
            return list(zip(self._agg_helper.compute_gradients(grads, variables), variables))
        return list(zip(self._reduction(grads, variables), variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Apply gradients that compute_gradients() returned."""
        given = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(given, global_step=global_step, name=name)

        if self._agg_helper is None:
            return apply()
        return self._agg_helper.apply_gradients(apply, self, given, global_step=global_step)


class _DistributedAdasumOptimizer(_Wrapped):
    """Combines the steps of the ranks' optimizers instead of gradients."""

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, compression: Any, passes: int
    ) -> None:
        super().__init__(optimizer, name or f"DistributedDelta{type(optimizer).__name__}", use_locking)
        self._compression = compression
        self._passes = passes
        self._starts: dict[int, Any] = {}
        self._count: Any = None

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Step, and after the last pass replace the change of each variable by the Adasum of all ranks'."""
        given = list(grads_and_vars)
        variables = [variable for grad, variable in given if grad is not None]
        with tf.init_scope():
            if self._count is None:
                self._count = tf.compat.v1.Variable(0, trainable=False, name=f"{self._name}_count")
            for variable in variables:
                if id(variable) not in self._starts:
                    self._starts[id(variable)] = tf.compat.v1.Variable(
                        tf.zeros(variable.shape, variable.dtype), trainable=False, name="delta_start"
                    )
        starts = [self._starts[id(variable)] for variable in variables]
        first = tf.equal(self._count % self._passes, 0)
        kept = [
            start.assign(tf.where(first, variable, start)) for start, variable in zip(starts, variables)
        ]
        with tf.control_dependencies(kept):
            stepped = self._optimizer.apply_gradients(given, global_step=global_step, name=name)
        with tf.control_dependencies([] if stepped is None or tf.executing_eagerly() else [stepped]):
            count = self._count.assign_add(1)
        with tf.control_dependencies([count] if not tf.executing_eagerly() else []):
            last = tf.equal(tf.convert_to_tensor(self._count) % self._passes, 0)

        def combine() -> Any:
            moved = [variable - start for variable, start in zip(variables, starts)]
            total = mpi_ops.grouped_allreduce(moved, compression=self._compression, op=Adasum)
            ends = [v.assign(start + delta) for v, start, delta in zip(variables, starts, total)]
            return _done(ends)

        return tf.cond(last, combine, lambda: tf.constant(False))


def _done(operations: Any) -> Any:
    """Return True after operations."""
    if tf.executing_eagerly():
        return tf.constant(True)
    with tf.control_dependencies(operations):
        return tf.constant(True)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like the given one, of tf.compat.v1 or Keras, that reduces gradients over ranks.

    compression: Compression.none, .fp16, .bf16 or a Compressor.
    sparse_as_dense: reduce IndexedSlices as dense tensors.
    backward_passes_per_step: backward passes whose gradients are added up before they are reduced; with
    average_aggregated_gradients their average is taken.
    op: Average or Sum; for optimizers of tf.compat.v1 also Adasum, which combines the optimizers' steps.
    gradient_predivide_factor: for Average, divide by this before adding up, and by the rest after it.
    groups: a number of groups, or lists of variables; a group is reduced as one. num_groups is its old name.
    scale_local_gradients: divide the gradients of local variables by the number of ranks.
    """
    groups = check_groups(num_groups, groups, gradient_predivide_factor, op)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if not isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            raise ValueError("op == Adasum is not supported yet with Keras")
        from gorun.tensorflow import keras

        return keras.DistributedOptimizer(
            optimizer, name=name, compression=compression, sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor, op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients, groups=groups,
            process_set=process_set, scale_local_gradients=scale_local_gradients,
        )  # fmt: skip
    if op == Adasum:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support process sets yet")
        return _DistributedAdasumOptimizer(
            optimizer, name, use_locking, compression, backward_passes_per_step
        )
    if backward_passes_per_step > 1 and tf.executing_eagerly():
        raise ValueError(
            "backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager execution."
        )
    reduction = Reduction(
        name or f"Distributed{type(optimizer).__name__}", compression, sparse_as_dense, op,
        gradient_predivide_factor, groups, process_set, scale_local_gradients,
    )  # fmt: skip
    return _DistributedOptimizer(
        optimizer, name, use_locking, reduction, backward_passes_per_step, average_aggregated_gradients,
        process_set, scale_local_gradients,
    )  # fmt: skip
