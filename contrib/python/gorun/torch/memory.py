"""Tensors and arena memory."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from gorun.bindings import DTYPES

if TYPE_CHECKING:
    from gorun.session import Block

# Older torch lacks some types. Without its prefix, the name of a torch type is the engine's.
_NAMES: dict[torch.dtype, str] = {
    getattr(torch, name): name for name in DTYPES if isinstance(getattr(torch, name, None), torch.dtype)
}


class Torch:
    """bindings.Binding for tensors on any device: a GPU's are copied through the host."""

    def describe(self, tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
        """Return element type and shape."""
        dtype = tensor.dtype
        return _NAMES.get(dtype) or type_name(dtype), tuple(tensor.shape)

    def plain(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor if its values lie in memory one after the other, else a copy on the host."""
        if is_plain(tensor):
            return tensor
        with torch.no_grad():
            return torch.empty(tuple(tensor.shape), dtype=tensor.dtype).copy_(tensor)

    def address(self, tensor: torch.Tensor) -> int:
        """Return where the values of a plain tensor lie."""
        return tensor.data_ptr()

    @staticmethod
    def place(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, int] | None:
        """Return type, shape and address of a tensor, None if is_plain() does not hold."""
        if (
            tensor.is_cpu
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and not tensor.is_neg()
            and not tensor.is_conj()
        ):
            return tensor.dtype, tensor.shape, tensor.data_ptr()
        return None

    def takes(self, tensor: torch.Tensor, dtype: str, shape: Sequence[int]) -> bool:
        """Report whether a result of a type and shape can be written to a tensor as plain memory."""
        return is_plain(tensor) and tensor.shape == shape and self.describe(tensor)[0] == dtype

    def empty(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """Return a new tensor in the host's memory."""
        return torch.empty(shape, dtype=like.dtype)

    def finished(self, tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device of like."""
        return tensor if like.is_cpu else tensor.to(like.device)

    def overwrite(self, target: torch.Tensor, tensor: torch.Tensor) -> None:
        """Copy a tensor into another, below autograd."""
        overwrite(target, tensor)

    def load(self, memory: memoryview, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """Return a new tensor, on the device of like."""
        fresh = torch.empty(tuple(shape), dtype=like.dtype)
        if memory:
            array = (ctypes.c_ubyte * len(memory)).from_address(fresh.data_ptr())
            memoryview(array).cast("B")[:] = memory
        return fresh.to(like.device)


def overwrite(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a tensor into another below autograd, as gloo, NCCL and Horovod write their results.

    Autograd does not count it as a change: what was saved for backward stays valid, and views can be written.
    """
    target.data.copy_(source)


def is_plain(tensor: torch.Tensor) -> bool:
    """Report whether a tensor's values lie in memory from data_ptr() on, and are not computed when read."""
    return Torch.place(tensor) is not None


def type_name(dtype: torch.dtype) -> str:
    """Return the engine's name of an element type."""
    return _NAMES.get(dtype) or str(dtype).replace("torch.", "", 1)


def tensor_over(block: Block, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Return a flat tensor over a block's memory, which is freed after its last view."""
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
