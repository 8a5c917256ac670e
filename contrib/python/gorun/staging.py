"""Tensors of any framework in blocks of the arena, which the daemon sees, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gorun.bindings import Binding, element_type
from gorun.layout import alone, pack
from gorun.world import World

_ALIGN = 64  # bytes between tensors of different types


class Staged:
    """Tensors in one block: of one element type, or of any types as bytes."""

    def __init__(
        self,
        world: World,
        binding: Binding,
        tensors: Sequence[Any],
        as_bytes: bool = False,
        described: Sequence[tuple[str, tuple[int, ...]]] | None = None,
    ) -> None:
        self._binding = binding
        self._tensors = tensors
        if described is None:
            described = [binding.describe(tensor) for tensor in tensors]
        self._shapes = [shape for _, shape in described]
        self._adjoin = len(tensors) > 1 and not as_bytes
        dtype = "uint8" if as_bytes else described[0][0]
        self.dtype, self._itemsize = element_type(dtype)
        if as_bytes:
            sizes = [(math.prod(shape) * element_type(dtype)[1],) for dtype, shape in described]
            self._layout = pack(sizes, _ALIGN, described)
            self.shape: tuple[int, ...] = (self._layout.used,)
        elif len(tensors) > 1:
            self._layout = pack(self._shapes)
            self.shape = (self._layout.used,)
        else:
            self.shape = self._shapes[0]  # so that the error of ranks which disagree shows both
            self._layout = alone(math.prod(self.shape))
        self.signature = self._layout.signature
        nbytes = math.prod(self.shape) * self._itemsize
        self.block = world.alloc(nbytes) if nbytes else None

    def fill(self) -> None:
        """Copy the tensors into the block."""
        if self.block is None:
            return
        if self._adjoin:
            self._binding.gather(self._tensors, self.block.view)
            return
        for tensor, memory in zip(self._tensors, self._memories()):
            if memory:
                self._binding.store(tensor, memory)

    def load(self) -> list[Any]:
        """Return new tensors."""
        if self._adjoin:
            return self.load_into([*map(self._binding.empty, self._shapes, self._tensors)])
        return [
            self._binding.load(memory, shape, tensor)
            for memory, shape, tensor in zip(self._memories(), self._shapes, self._tensors)
        ]

    def load_into(self, targets: Sequence[Any]) -> list[Any]:
        """Overwrite the targets and return them."""
        if self._adjoin and self.block is not None:
            self._binding.scatter(self.block.view, self._itemsize, self._layout.counts, targets)
            return list(targets)
        for memory, target in zip(self._memories(), targets):
            if memory:
                self._binding.load_into(memory, target)
        return list(targets)

    def _memories(self) -> Iterator[memoryview]:
        size = self._itemsize
        view = memoryview(b"") if self.block is None else self.block.view
        for offset, count in zip(self._layout.offsets, self._layout.counts):
            yield view[offset * size : (offset + count) * size]


def stage(
    world: World,
    binding: Binding,
    groups: Sequence[Sequence[Any]],
    described: Sequence[Sequence[tuple[str, tuple[int, ...]]] | None] | None = None,
) -> list[Staged]:
    """Copy groups of tensors, each of one element type, to blocks, or leave nothing behind."""
    staged: list[Staged] = []
    try:
        for tensors, of_them in zip(groups, described or [None] * len(groups)):
            staged.append(Staged(world, binding, tensors, described=of_them))
            staged[-1].fill()
    except BaseException:
        for one in staged:
            if one.block is not None:
                one.block.free()
        raise
    return staged


def with_rows(
    binding: Binding, results: Sequence[Any], likes: Sequence[Any]
) -> list[tuple[Any, tuple[int, ...]]]:
    """Return results as new tensors otherwise like others, each with its rows by rank."""
    return [
        (binding.load(result.view or memoryview(b""), result.shape, like), result.rows)
        for result, like in zip(results, likes)
    ]
