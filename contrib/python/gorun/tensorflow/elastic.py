"""Elastic training with TensorFlow: states, and the decorator of the training function."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

from gorun import basics, elastic
from gorun.elastic import ObjectState, State, run_fn
from gorun.tensorflow import engine
from gorun.tensorflow.failures import translate
from gorun.training.state import KerasState as _KerasState
from gorun.training.state import Variables

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run", "run_fn"]


def _reset() -> None:
    basics.reset()
    engine.current()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a State."""

    @functools.wraps(func)
    def translating(state: State, *args: Any, **kwargs: Any) -> Any:
        with translate():
            return func(state, *args, **kwargs)

    return elastic.run_fn(translating, _reset)


class TensorFlowKerasState(_KerasState):
    """TensorFlowKerasState(model, optimizer, epoch=0): a Keras model, its optimizer and plain values.

    backend is Horovod's.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class TensorFlowState(Variables):
    """TensorFlowState(variables, epoch=0, batch=0): variables and plain values.

    Without variables it takes all of the graph of TensorFlow 1, in session or the default session.
    """

    def __init__(self, variables: Iterable[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        if variables is None:
            variables = tf.compat.v1.global_variables()
        self.variables = list(variables)
        self.session = session or (None if tf.executing_eagerly() else tf.compat.v1.get_default_session())
        super().__init__(**kwargs)

    def _members(self) -> list[Any]:
        return self.variables

    def _read(self, variables: list[Any]) -> list[Any]:
        return super()._read(variables) if self.session is None else self.session.run(variables)

    def _write(self, variable: Any, value: Any) -> None:
        if self.session is None:
            super()._write(variable, value)
        else:
            variable.load(value, self.session)
