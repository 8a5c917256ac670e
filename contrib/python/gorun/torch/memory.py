"""Tensors and arena memory."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from gorun.collectives import DTYPES

try:
    from gorun import sums
except ImportError:  # torch runs without NumPy
    sums = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from gorun.session import Block

# Older torch lacks some types. The name of a torch type is that of the engine, but for the prefix.
_NAMES: dict[torch.dtype, str] = {
    getattr(torch, name): name for name in DTYPES if isinstance(getattr(torch, name, None), torch.dtype)
}


class Torch:
    """collectives.Binding for tensors, on whatever device: those of a GPU are copied through the host."""

    def describe(self, tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
        """Return element type and shape."""
        return type_name(tensor.dtype), tuple(tensor.shape)

    def store(self, tensor: torch.Tensor, memory: memoryview) -> None:
        """Copy a tensor to memory."""
        with torch.no_grad():
            torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)

    def load(self, memory: memoryview, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """Return a new tensor, on the device of like."""
        fresh = torch.empty(tuple(shape), dtype=like.dtype)
        if memory.readonly and memory:  # torch would warn of a tensor over it
            array = (ctypes.c_ubyte * len(memory)).from_address(fresh.data_ptr())
            memoryview(array).cast("B")[:] = memory
        elif memory:
            fresh.copy_(torch.frombuffer(memory, dtype=like.dtype).view(fresh.shape))
        return fresh.to(like.device)

    def load_into(self, memory: memoryview, tensor: torch.Tensor) -> None:
        """Overwrite a tensor."""
        with torch.no_grad():
            tensor.copy_(torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape))


    # NumPy adds and looks for NaNs several times as fast as torch does.
    lanes = sums is not None

    def over(self, memories: Sequence[memoryview], like: torch.Tensor) -> Any:
        """Return arrays that are memory."""
        return sums.arrays_over(memories, type_name(like.dtype), like.shape)

    def put(self, tensor: torch.Tensor, array: Any) -> None:
        """Copy a tensor to an array."""
        array[...] = tensor.detach().cpu().resolve_neg().numpy()  # z.conj().imag is negated when it is read

    def add(self, arrays: Any, by: float, like: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
        """Add arrays up."""
        total = torch.from_numpy(sums.add(arrays, by))
        if target is None:
            return total.to(like.device)
        with torch.no_grad():
            return target.copy_(total)


def type_name(dtype: torch.dtype) -> str:
    """Return the engine's name of an element type."""
    return _NAMES.get(dtype) or str(dtype).replace("torch.", "", 1)


def tensor_over(block: Block, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Return a flat tensor that is a block's memory, which is freed after its last view."""
    nbytes = count * torch.empty((), dtype=dtype).element_size()
    array = (ctypes.c_ubyte * nbytes).from_buffer(block.view)
    weakref.finalize(array, block.free).atexit = False
    return torch.frombuffer(array, dtype=dtype)


def strided_view(flat: torch.Tensor, offset: int, like: torch.Tensor) -> torch.Tensor:
    """Return a view of flat with shape and strides of another tensor, as far as those leave no gaps."""
    shape = tuple(like.shape)
    if is_dense(shape, like.stride()):
        return flat.as_strided(shape, like.stride(), flat.storage_offset() + offset)
    return flat[offset : offset + math.prod(shape)].view(shape)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Report whether strides put the elements of a shape one after the other, in any order of dimensions."""
    expected = 1
    for stride, length in sorted((stride, length) for stride, length in zip(strides, shape) if length != 1):
        if stride != expected:
            return False
        expected *= length
    return True
