"""Tensors of any framework as memory that the library reads and writes, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gorun.bindings import Binding, element_type
from gorun.layout import pack


class Staged:
    """Tensors of one element type, or of any types as bytes, and where the results go.

    A result is written to its target, or to a new tensor, whose content goes to the target at the end where
    it cannot lie there: the target may be on a device, have gaps, or be of another type.
    """

    def __init__(
        self,
        binding: Binding,
        tensors: Sequence[Any],
        targets: Sequence[Any] | None = None,
        *,
        described: Sequence[tuple[str, tuple[int, ...]]] | None = None,
        as_bytes: bool = False,
        reads: bool = True,
        writes: bool = True,
    ) -> None:
        self._binding, self._tensors, self._targets = binding, tensors, targets
        if described is None:
            described = [binding.describe(tensor) for tensor in tensors]
        dtype = "uint8" if as_bytes else described[0][0]
        self.dtype, itemsize = element_type(dtype)
        self._described = described
        self._sources = [binding.plain(tensor) for tensor in tensors] if reads else list(tensors)
        self._outputs: list[Any] = []
        if writes:
            self._outputs = [self._output(i) for i in range(len(tensors))]
        shapes = [shape for _, shape in described]
        self.signature = 0
        self.shape = shapes[0]  # so that the error of ranks which disagree shows both
        self.options: dict[str, Any] = {}
        sizes = [math.prod(shape) * element_type(name)[1] for name, shape in described]
        if len(tensors) > 1:
            layout = pack([(size,) for size in sizes], 1, described) if as_bytes else pack(shapes)
            self.signature, self.shape = layout.signature, (layout.used,)
            pieces: list[int] = []
            for i, size in enumerate(sizes):
                target = binding.address(self._outputs[i]) if size else 0
                pieces += (binding.address(self._sources[i]) if reads and size else target, target, size)
            self.options["pieces"] = pieces
        elif sizes[0]:
            self.options["nbytes"] = sizes[0]
            if reads:
                self.options["source"] = binding.address(self._sources[0])
            if writes:
                self.options["target"] = binding.address(self._outputs[0])

    def _output(self, i: int) -> Any:
        binding, source, target = self._binding, self._sources[i], None
        if self._targets is not None:
            target = self._targets[i]
            if target is source or binding.takes(target, *self._described[i]):
                return target
        return binding.empty(self._described[i][1], source)

    def moved(self) -> bool:
        """Report whether the memory of a target is no longer where the result was to be written."""
        if self._targets is None:
            return False
        one = 0, self.options.get("target", 0), self.options.get("nbytes", 0)
        pieces = self.options.get("pieces") or one
        binding = self._binding
        for i, (output, target) in enumerate(zip(self._outputs, self._targets)):
            if output is not target or not pieces[3 * i + 2]:
                continue
            same = binding.takes(target, *self._described[i])
            if not same or binding.address(target) != pieces[3 * i + 1]:
                return True
        return False

    def load(self) -> list[Any]:
        """Return the results."""
        if self._targets is None:
            return [*map(self._binding.finished, self._outputs, self._tensors)]
        for output, target in zip(self._outputs, self._targets):
            if output is not target:
                self._binding.overwrite(target, output)
        return list(self._targets)


def with_rows(
    binding: Binding, results: Sequence[Any], likes: Sequence[Any]
) -> list[tuple[Any, tuple[int, ...]]]:
    """Return results as new tensors otherwise like others, each with its rows by rank."""
    return [
        (binding.load(result.view or memoryview(b""), result.shape, like), result.rows)
        for result, like in zip(results, likes)
    ]
