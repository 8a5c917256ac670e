"""The state of a training with variables of TensorFlow or Keras, of any backend."""

from __future__ import annotations

from typing import Any

from gorun import basics
from gorun.elastic import ObjectState
from gorun.objects import broadcast_object
from gorun.training.models import read, settled, write


class Variables(ObjectState):
    """Variables, and plain values. A subclass chooses the variables."""

    def __init__(self, **kwargs: Any) -> None:
        self._saved_values: list[Any] = []
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **kwargs)
        self._saved_values = self._read(self._members())

    def _members(self) -> list[Any]:
        raise NotImplementedError

    def _read(self, variables: list[Any]) -> list[Any]:
        return [read(variable) for variable in variables]

    def _write(self, variable: Any, value: Any) -> None:
        write(variable, value)

    def save(self) -> None:
        """Copy everything, or nothing: variables and values belong together."""
        copied = self._copied()
        self._saved_values = self._read(self._members())
        self._keep(copied)

    def restore(self) -> None:
        """Restore everything."""
        for variable, value in zip(self._members(), self._saved_values):
            self._write(variable, value)
        super().restore()

    def _take_over(self, root: int) -> None:
        values = broadcast_object(
            self._read(self._members()) if basics.rank() == root else None, root, name="gorun.state.variables"
        )
        mine = self._members()
        if len(mine) != len(values):
            mine = self._grown(len(values))
        if basics.rank() != root:
            for variable, value in zip(mine, values):
                self._write(variable, value)
        super()._take_over(root)

    def _grown(self, count: int) -> list[Any]:
        """Return the variables, which are to be as many as the root's."""
        raise ValueError(f"this rank has {len(self._members())} variables, and the state {count}")


class KerasState(Variables):
    """KerasState(model, optimizer=None, epoch=0, batch=0): a model, its optimizer and plain values."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        super().__init__(**kwargs)

    def _members(self) -> list[Any]:
        settled(self.model)
        variables = list(self.model.variables)
        there = {id(variable) for variable in variables}
        optimizer = getattr(self.optimizer, "variables", [])
        optimizer = optimizer() if callable(optimizer) else optimizer
        return variables + [variable for variable in optimizer if id(variable) not in there]

    def _grown(self, count: int) -> list[Any]:
        # The optimizer of a rank that is new has no slots yet.
        if hasattr(self.optimizer, "build"):
            self.optimizer.build(self.model.trainable_variables)
        if len(self._members()) != count:
            return super()._grown(count)
        return self._members()
