"""Tensors and arena memory."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from gorun.bindings import DTYPES

try:
    from gorun import sums
except ImportError:  # torch runs without NumPy
    sums = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from gorun.session import Block

_SMALL = 64 << 10  # bytes up to which a call of torch takes longer than a copy by one thread
_TINY = 1 << 10  # average bytes of a tensor up to which one call for all and another copy are faster

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
        overwrite(tensor, torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape))

    def gather(self, tensors: Sequence[torch.Tensor], memory: memoryview) -> None:
        """Copy tensors of one type to memory, one after the other."""
        if len(memory) <= len(tensors) * _TINY and all([tensor.is_cpu for tensor in tensors]):
            with torch.no_grad():
                flat = torch._utils._flatten_dense_tensors(tensors)
                torch.frombuffer(memory, dtype=flat.dtype).copy_(flat)
            return
        start = at = address(memory)
        size = tensors[0].element_size()
        for tensor in tensors:
            nbytes = tensor.numel() * size
            if is_plain(tensor) and nbytes <= _SMALL:
                ctypes.memmove(at, tensor.data_ptr(), nbytes)
            elif nbytes:
                self.store(tensor, memory[at - start : at - start + nbytes])
            at += nbytes

    def scatter(
        self, memory: memoryview, itemsize: int, counts: Sequence[int], tensors: Sequence[torch.Tensor]
    ) -> None:
        """Overwrite tensors of one type, with these numbers and sizes of elements, from memory."""
        start = at = address(memory)
        dtype = tensors[0].dtype
        small = _SMALL if tensors[0].element_size() == itemsize else -1
        for tensor, count in zip(tensors, counts):
            nbytes = count * itemsize
            same = tensor.dtype is dtype and tensor.numel() == count
            if nbytes <= small and same and is_plain(tensor):
                ctypes.memmove(tensor.data_ptr(), at, nbytes)
            elif nbytes:
                self.load_into(memory[at - start : at - start + nbytes], tensor)
            at += nbytes

    def empty(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """Return a new tensor, on the device of like."""
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    adds = sums is not None  # NumPy adds and looks for NaNs several times as fast as torch does

    def flat(self, tensor: torch.Tensor) -> Any:
        """Return a flat array of NumPy's over the memory of a tensor."""
        if not is_plain(tensor) or not tensor.numel():
            return None
        return tensor.detach().view(-1).numpy()

    def cell(self, memory: memoryview, like: torch.Tensor) -> _Cell:
        """Return what moves tensors like that to and from memory."""
        return _Cell(memory, like)


class _Cell:
    """bindings.Cell for tensors.

    A call of torch takes longer than all the rest, so what is plain memory is moved as such.
    """

    def __init__(self, memory: memoryview, like: torch.Tensor) -> None:
        self._dtype, self._shape, self._nbytes = like.dtype, like.shape, len(memory)
        self._view = torch.frombuffer(memory, dtype=like.dtype).view(like.shape)
        self._address = self._view.data_ptr()

    def fits(self, tensor: torch.Tensor) -> bool:
        """Report whether the memory is for such a tensor."""
        return tensor.dtype is self._dtype and tensor.shape == self._shape

    def put(self, tensor: torch.Tensor) -> None:
        """Copy a tensor that fits to the memory."""
        if is_plain(tensor):
            ctypes.memmove(self._address, tensor.data_ptr(), self._nbytes)
        else:
            self._view.copy_(tensor.detach())

    def get(self, like: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
        """Return the content of the memory, as a new tensor on the device of like, or in target."""
        if target is None:
            return self._view.clone().to(like.device)
        if is_plain(target) and self.fits(target):
            ctypes.memmove(target.data_ptr(), self._address, self._nbytes)
        else:
            overwrite(target, self._view)
        return target


def overwrite(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a tensor into another below autograd, as gloo, NCCL and Horovod write their results.

    Autograd does not count it as a change: what was saved for backward stays valid, and views can be written.
    """
    target.data.copy_(source)


def is_plain(tensor: torch.Tensor) -> bool:
    """Report whether a tensor's values lie in memory from data_ptr() on, and are not computed when read."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def address(memory: memoryview) -> int:
    """Return the address of writable memory."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


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
