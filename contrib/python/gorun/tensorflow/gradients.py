"""The reduction of gradients over the ranks, and their accumulation over several backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from gorun import basics
from gorun.collectives import Average, Min
from gorun.features import split_list
from gorun.layout import dealt
from gorun.process_sets import ProcessSet, global_process_set
from gorun.tensorflow import counting, engine, mpi_ops
from gorun.tensorflow.compression import Compression

# In a graph, gradients travel as soon as so many bytes of them are there, while the others are computed.
_BUCKET_BYTES = 16 << 20


def tensorflow_variable(variable: Any) -> Any:
    """Return the tf.Variable of a variable, which may be one of Keras 3."""
    value = getattr(variable, "_value", None)
    return value if isinstance(value, tf.Variable) else variable


def key(variable: Any) -> int:
    """Return what identifies a variable of TensorFlow or Keras."""
    return id(tensorflow_variable(variable))


class Reduction:
    """Reduces lists of gradients; a gradient may be None, or IndexedSlices."""

    def __init__(
        self,
        name: str = "Distributed",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        self._name = name
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._op = op
        average = op == Average
        self._prescale = 1.0 / gradient_predivide_factor if average else 1.0
        self._postscale = gradient_predivide_factor if average else 1.0
        self._groups = groups
        self._process_set = process_set
        self._scale_local = scale_local_gradients
        self._local: set[int] = set()
        self._kept: list[Any] = []  # local variables, so that no other takes their identity

    def keep_local(self, variable: Any) -> None:
        """Leave the gradients of a variable to this rank."""
        self._local.add(key(variable))
        self._kept.append(variable)

    def is_local(self, variable: Any) -> bool:
        """Report whether the gradients of a variable are left to this rank."""
        return key(variable) in self._local

    def _alone(self) -> bool:
        return not basics.elastic() and (not self._process_set.included() or self._process_set.size() == 1)

    def least(self, value: Any) -> Any:
        """Return the least of the ranks' numbers."""
        return value if self._alone() else mpi_ops.allreduce(value, op=Min, process_set=self._process_set)

    def __call__(
        self, grads: Sequence[Any], variables: Sequence[Any] | None = None, use_generic_names: bool = False
    ) -> list[Any]:
        """Return the gradients over all ranks; local variables' are divided by the number of ranks."""
        grads = list(grads)
        variables = list(variables) if variables is not None else [None] * len(grads)
        mine = [i for i, variable in enumerate(variables) if self._local and self.is_local(variable)]
        rest = [i for i, grad in enumerate(grads) if grad is not None and i not in mine]
        alone = self._alone()
        counting.step(grads, alone)
        for i in rest:
            grads[i] = self._given(grads[i])
        if alone:
            return grads
        if self._scale_local and any(grads[i] is not None for i in mine):
            size = engine.current().ask(engine.SIZE, self._process_set)
            for i in mine:
                if grads[i] is not None:
                    grads[i] = _scaled(grads[i], size)
        with tf.name_scope(f"{self._name}_Allreduce"):
            for number, bucket in enumerate(self._buckets(rest, grads, variables)):
                reduced = mpi_ops._reduced(
                    [grads[i] for i in bucket], f"grad_{number}" if use_generic_names else None, self._op,
                    self._prescale, self._postscale, self._process_set, use_generic_names, self._compression,
                )  # fmt: skip
                for i, grad in zip(bucket, reduced):
                    grads[i] = grad
        return grads

    def _given(self, grad: Any) -> Any:
        sparse = isinstance(grad, tf.IndexedSlices)
        return tf.convert_to_tensor(grad) if sparse and self._sparse_as_dense else grad

    def _buckets(
        self, rest: Sequence[int], grads: Sequence[Any], variables: Sequence[Any]
    ) -> list[list[int]]:
        """Return the gradients that are reduced together, the same on all ranks."""
        if isinstance(self._groups, list):
            place = {key(variables[i]): i for i in rest}
            groups = [[place.pop(key(v)) for v in group if key(v) in place] for group in self._groups]
            return [group for group in groups if group] + [[i] for i in place.values()]
        if self._groups:
            return [part for part in split_list(list(rest), self._groups) if part]
        if tf.executing_eagerly():
            return [list(rest)] if rest else []
        last_first = list(reversed(rest))  # as backward passes compute them
        buckets = dealt([_bytes(grads[i]) for i in last_first], _BUCKET_BYTES)
        return [[last_first[i] for i in bucket] for bucket in buckets]


def _bytes(grad: Any) -> int:
    if isinstance(grad, tf.IndexedSlices):
        return 0
    return (grad.shape.num_elements() or 0) * grad.dtype.size


def _scaled(grad: Any, size: Any) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        values = grad.values / tf.cast(size, grad.values.dtype)
        return tf.IndexedSlices(values, grad.indices, grad.dense_shape)
    return grad / tf.cast(size, grad.dtype)


class LocalGradientAggregationHelper:
    """Adds up the gradients of several backward passes, and reduces the sum over the ranks after the last."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
        optimizer_type: str = _OPTIMIZER_TYPE_KERAS,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients
        self.allreduce_grads = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.name = name
        self.counter: Any = None
        self.locally_aggregated_grads: list[Any] = []

    def register_local_var(self, var: Any) -> None:
        """Leave the gradients of a variable to this rank."""
        self.allreduce_grads.keep_local(var)  # type: ignore[attr-defined]

    def _build(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        if self.counter is not None:
            return
        with tf.init_scope():
            legacy = not tf.executing_eagerly()
            make = tf.compat.v1.Variable if legacy else tf.Variable
            extra = {"collections": [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES]} if legacy else {}
            self.counter = make(0, trainable=False, name=f"{self.name}aggregation_counter", **extra)
            self.locally_aggregated_grads = [
                None if grad is None else make(
                    tf.zeros(variable.shape, grad.dtype), trainable=False,
                    name=f"{self.name}aggregation_{i}", **extra,
                )
                for i, (grad, variable) in enumerate(zip(grads, variables))
            ]  # fmt: skip

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Return the reduced sum at the last pass of a step, and this rank's sum up to now before."""
        grads = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads]
        self._build(grads, vars)
        there = [i for i, grad in enumerate(grads) if grad is not None]
        sums = self.locally_aggregated_grads
        added = [sums[i].assign_add(grads[i]) for i in there]
        with tf.control_dependencies(added):
            count = self.counter.assign_add(1)
        with tf.control_dependencies([count]):
            last = tf.equal(tf.convert_to_tensor(self.counter), self.backward_passes_per_step)
            now = [tf.identity(sums[i]) for i in there]

        def reduce() -> list[Any]:
            # Tensors of this branch: what it clears does not wait for those from outside to have been read.
            mine = [tf.identity(grad) for grad in now]
            reduced = self.allreduce_grads(mine, [vars[i] for i in there])
            if self.average_aggregated_gradients:
                reduced = [grad / tf.cast(self.backward_passes_per_step, grad.dtype) for grad in reduced]
            with tf.control_dependencies(reduced):
                cleared = [sums[i].assign(tf.zeros_like(sums[i])) for i in there]
                cleared.append(self.counter.assign(0))
            with tf.control_dependencies(cleared):
                return [tf.identity(grad) for grad in reduced]

        if not there:
            return list(grads)
        results = list(grads)
        for i, grad in zip(there, tf.cond(last, reduce, lambda: now)):
            results[i] = grad
        return results

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Apply gradients after the last pass of a step only; the optimizer's iterations count every pass."""
        given = args[0] if args else kwargs["grads_and_vars"]
        needs = [grad for grad, _ in given if grad is not None]
        with tf.control_dependencies(needs):
            first = tf.equal(tf.convert_to_tensor(self.counter), 0)

        def apply() -> Any:
            with tf.control_dependencies([tf.group(apply_grads_closure())]):
                return tf.constant(True)

        def skip() -> Any:
            counts = getattr(optimizer, "iterations", None), kwargs.get("global_step")
            with tf.control_dependencies([count.assign_add(1) for count in counts if count is not None]):
                return tf.constant(False)

        if tf.executing_eagerly():
            return apply_grads_closure() if bool(first) else skip()
        return tf.cond(first, apply, skip)


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """The same; Horovod has two."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., Any],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        super().__init__(
            backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients,
            process_set=process_set, scale_local_gradients=scale_local_gradients,
        )  # fmt: skip
