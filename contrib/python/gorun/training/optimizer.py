"""DistributedOptimizer for the optimizers of Keras 3, on any backend, and of Keras 2."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from gorun import basics, loaders
from gorun.collectives import Average, Min, Sum
from gorun.counters import counters
from gorun.process_sets import ProcessSet
from gorun.training import models

JIT_OFF = "gorun: jit_compile is turned off for this model: XLA cannot compile the operations between ranks"


def create(
    optimizer: Any, name: str | None, compression: Any, sparse_as_dense: bool, predivide: float, op: int,
    passes: int, average: bool, groups: Any, process_set: ProcessSet, scale_local: bool,
) -> Any:  # fmt: skip
    """Return an optimizer like the given one, with its state, that reduces gradients over the ranks.

    Its class has the name and the module of the optimizer's class, so that it is saved as that.
    """
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    if passes < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    if isinstance(optimizer, (_Keras3, _Keras2)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    keras_3 = hasattr(optimizer, "_clip_gradients") and hasattr(optimizer, "apply")
    inner = getattr(optimizer, "inner_optimizer", None)
    if keras_3 and inner is not None:  # a LossScaleOptimizer, which leaves the step to another one
        inner = create(
            inner, name, compression, sparse_as_dense, predivide, op, passes, average, groups, process_set,
            scale_local,
        )  # fmt: skip
        return _around(optimizer, inner)
    backend = _backend() if keras_3 else "tensorflow"
    label = name or f"Distributed{type(optimizer).__name__}"
    reduce: Any
    if backend == "tensorflow":
        from gorun.tensorflow.compression import Compression
        from gorun.tensorflow.gradients import Reduction

        reduce = Reduction(
            label, Compression.none if compression is None else compression, sparse_as_dense, op, predivide,
            groups, process_set, scale_local,
        )  # fmt: skip
    else:
        reduce = _Arrays(backend, compression, op, predivide, process_set, scale_local)
    wrapped = _wrap(optimizer, _Keras3 if keras_3 else _Keras2)
    if name is not None:
        _set(wrapped, _name=name)
        if "name" in vars(wrapped):
            _set(wrapped, name=name)
    _set(
        wrapped, _gorun=reduce, _gorun_backend=backend, process_set=process_set,
        scale_local_gradients=scale_local,
    )  # fmt: skip
    wrapped._gorun_begin(passes, average)
    _watch(optimizer)
    return wrapped


def _backend() -> str:
    import keras

    return keras.backend.backend()


@functools.cache
def _class_of(base: type, what: type) -> type:
    made = type(base.__name__, (what, base), {"__module__": base.__module__, "__doc__": base.__doc__})
    made.__qualname__ = base.__qualname__
    try:  # Keras 3 saves a class by its public name
        from keras.src import api_export

        public = api_export.REGISTERED_OBJS_TO_NAMES
        if base in public:
            public[made] = public[base]
    except (ImportError, AttributeError):
        pass  # Keras 2
    return made


def _wrap(optimizer: Any, what: type) -> Any:
    made = _class_of(type(optimizer), what)
    wrapped = object.__new__(made)
    wrapped.__dict__.update(optimizer.__dict__)
    return wrapped


def _around(optimizer: Any, inner: Any) -> Any:
    """Return a LossScaleOptimizer like the given one, around another optimizer."""
    made = object.__new__(type(optimizer))
    made.__dict__.update(optimizer.__dict__)
    _set(made, inner_optimizer=inner, register_local_var=inner.register_local_var)
    return made


def _set(optimizer: Any, **attributes: Any) -> None:
    """Set attributes that Keras does not look for variables in, and does not save."""
    for name, value in attributes.items():
        object.__setattr__(optimizer, name, value)


class _Arrays:
    """Reduces gradients that are arrays of JAX or tensors of torch; a gradient may be None."""

    def __init__(
        self, backend: str, compression: Any, op: int, predivide: float, process_set: ProcessSet, scale: bool
    ) -> None:
        if backend == "jax":
            import gorun.jax as front

            loaders.count_keras()
        elif backend == "torch":
            import gorun.torch as front  # type: ignore[no-redef]
        else:
            raise ValueError(f"Keras runs on {backend}; gorun has tensorflow, jax and torch")
        self._front = front
        self._backend = backend
        self._options: dict[str, Any] = {"op": op, "process_set": process_set}
        predivide = predivide if op == Average else 1.0
        if backend == "torch":
            self._options.update(prescale_factor=1.0 / predivide, postscale_factor=predivide)
        else:
            self._options["gradient_predivide_factor"] = predivide
        if compression is not None:
            self._options["compression"] = compression
        self._process_set = process_set
        self._scale = scale
        self._local: list[Any] = []

    def keep_local(self, variable: Any) -> None:
        """Leave the gradients of a variable to this rank."""
        self._local.append(variable)

    def is_local(self, variable: Any) -> bool:
        """Report whether the gradients of a variable are left to this rank."""
        return any(variable is local for local in self._local)

    def _alone(self) -> bool:
        return not self._process_set.included() or (self._process_set.size() == 1 and not basics.elastic())

    def least(self, value: Any) -> Any:
        """Return the least of the ranks' numbers."""
        if self._alone():
            return value
        return self._front.allreduce(value, name="finite", op=Min, process_set=self._process_set)

    def __call__(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the gradients over all ranks; local variables' are divided by the number of ranks."""
        grads = list(grads)
        if self._alone():
            return grads
        mine = [i for i, variable in enumerate(variables) if self.is_local(variable)]
        rest = [i for i, grad in enumerate(grads) if grad is not None and i not in mine]
        for i in mine:
            if self._scale and grads[i] is not None:
                grads[i] = grads[i] / self._process_set.size()
        if rest:
            for i, grad in zip(rest, self._reduced([grads[i] for i in rest])):
                grads[i] = grad
        return grads

    def _reduced(self, grads: list[Any]) -> list[Any]:
        if self._backend == "torch":
            counters.step()
            return self._front.grouped_allreduce(grads, name="gradients", **self._options)
        return self._front.reduce_gradients(grads, **self._options)


class _Distributed:
    """What is common to the optimizers of Keras 2 and 3."""

    _gorun: Any
    _gorun_backend: str
    process_set: ProcessSet
    scale_local_gradients: bool

    def register_local_var(self, var: Any) -> None:
        """Leave the gradients of a variable to this rank."""
        self._gorun.keep_local(var)


class _Keras3(_Distributed):
    """Reduces the gradients where Keras 3 clips them: after accumulation, once a step."""

    _gorun_variables: Sequence[Any] = ()
    _gorun_factor = 1

    def _gorun_begin(self, passes: int, average: bool) -> None:
        if passes > 1:
            if getattr(self, "built", False):
                raise ValueError("backward_passes_per_step: wrap the optimizer before it is built")
            # Keras accumulates, and averages over the passes.
            _set(self, gradient_accumulation_steps=passes, _gorun_factor=1 if average else passes)

    def _backend_apply_gradients(self, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        _set(self, _gorun_variables=list(trainable_variables))
        super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Sequence[Any]) -> Any:
        grads = self._gorun(grads, self._gorun_variables)
        if self._gorun_factor != 1:
            grads = [None if grad is None else grad * self._gorun_factor for grad in grads]
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _gorun_agree(self, finite: Any) -> Any:
        """Return whether the gradients of all ranks are finite: they take the step together or not at all."""
        from keras import ops

        return ops.cast(self._gorun.least(ops.cast(finite, "int32")), "bool")


class _Keras2(_Distributed):
    """Reduces the gradients when they are computed, or when they are applied without that."""

    _gorun_passes: Any = None
    _gorun_reduced = False  # since the last step

    def _gorun_begin(self, passes: int, average: bool) -> None:
        if passes > 1:
            from gorun.tensorflow.gradients import LocalGradientAggregationHelper

            _set(self, _gorun_passes=LocalGradientAggregationHelper(passes, self._gorun, True, average))

    def _gorun_reduce(self, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        pairs = list(pairs)
        if not pairs:
            return pairs
        grads, variables = zip(*pairs)
        if self._gorun_passes is not None:
            reduced = self._gorun_passes.compute_gradients(grads, variables)
        else:
            reduced = self._gorun(grads, variables)
        _set(self, _gorun_reduced=True)
        return list(zip(reduced, variables))

    def _gorun_given(self, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return gradients to apply over all ranks, which those are that were computed here."""
        return list(pairs) if self._gorun_reduced else self._gorun_reduce(pairs)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return pairs of gradient over all ranks and variable."""
        return self._gorun_reduce(super().compute_gradients(*args, **kwargs))  # type: ignore[misc]

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        if not hasattr(super(), "_compute_gradients"):  # the newer optimizers of Keras 2
            return self.compute_gradients(loss, var_list, tape)
        return self._gorun_reduce(super()._compute_gradients(loss, var_list, grad_loss, tape))  # type: ignore[misc]

    @property
    def _agg_helper(self) -> Any:
        return self._gorun_passes  # by the name that Horovod's has

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """Return gradients over all ranks."""
        grads = super().get_gradients(loss, params)  # type: ignore[misc]
        return [grad for grad, _ in self._gorun_reduce(zip(grads, params))]

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply gradients, which are reduced first unless compute_gradients() did."""
        pairs = self._gorun_given(grads_and_vars)
        _set(self, _gorun_reduced=False)
        apply = functools.partial(super().apply_gradients, pairs, *args, **kwargs)  # type: ignore[misc]
        if self._gorun_passes is None:
            return apply()
        if hasattr(self, "build"):
            import tensorflow as tf

            with tf.init_scope():
                self.build([variable for _, variable in pairs])
        else:
            self._create_all_weights([variable for _, variable in pairs])
        return self._gorun_passes.apply_gradients(apply, self, pairs)


def _check_finite(of_keras: Any) -> Any:
    @functools.wraps(of_keras)
    def check_finite(self: Any, grads: Sequence[Any]) -> Any:
        finite = of_keras(self, grads)
        inner = self.inner_optimizer
        return inner._gorun_agree(finite) if isinstance(inner, _Keras3) else finite

    return check_finite


def _apply_gradients(of_keras: Any) -> Any:
    @functools.wraps(of_keras)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        inner = self.inner_optimizer
        if not isinstance(inner, _Keras2):
            return of_keras(self, grads_and_vars, *args, **kwargs)
        pairs = inner._gorun_given(grads_and_vars)
        try:
            return of_keras(self, pairs, *args, **kwargs)
        finally:
            _set(inner, _gorun_reduced=False)  # also where the step was skipped

    return apply_gradients


def _agreed(keras: Any) -> None:
    """Let ranks that use a LossScaleOptimizer of a Keras skip a step together, if one has gradients like inf.

    They decide before they call the optimizer that is distributed, which ranks would wait in for others.
    """
    base = keras.mixed_precision.LossScaleOptimizer
    for cls in base, *base.__subclasses__():
        if "check_finite" in vars(cls):  # Keras 3
            cls.check_finite = _check_finite(cls.check_finite)
        elif "apply_gradients" in vars(cls):
            cls.apply_gradients = _apply_gradients(cls.apply_gradients)


@functools.cache
def _watched(keras: str) -> bool:
    """Let compile() of a Keras turn jit off for models whose optimizer is distributed, on TensorFlow."""
    _agreed(sys.modules[keras])
    mro = sys.modules[keras].Model.__mro__
    model = next(base for base in mro if "compile" in vars(base))  # Keras compares with its own
    compile_model = model.compile

    @functools.wraps(compile_model)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = compile_model(self, *args, **kwargs)
        optimizer = models.stepping(getattr(self, "optimizer", None))
        if isinstance(optimizer, _Distributed) and optimizer._gorun_backend == "tensorflow":
            if getattr(self, "jit_compile", False):
                self.jit_compile = False
                if basics.is_initialized() and basics.rank() == 0:
                    print(JIT_OFF, file=sys.stderr)
        return result

    model.compile = compile
    return True


def _watch(optimizer: Any) -> None:
    root = type(optimizer).__module__.partition(".")[0]
    for keras in {root, "keras"}:
        if keras in sys.modules and hasattr(sys.modules[keras], "Model"):
            _watched(keras)
