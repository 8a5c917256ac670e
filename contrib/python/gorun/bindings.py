"""What a framework tells gorun about its tensors, and what carries those that lie on devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Protocol

from gorun import constants

if TYPE_CHECKING:
    from gorun.process_sets import ProcessSet
    from gorun.world import World

# Element types by the name that numpy, torch and the engine have in common.
DTYPES: dict[str, int] = {
    name: getattr(constants, name.upper())
    for name in (
        "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
        "float32", "float64", "bool", "complex64", "complex128",
        # Moved, but not reduced:
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32",
    )
}  # fmt: skip


def element_type(dtype: str) -> tuple[int, int]:
    """Return number and size of an element type."""
    try:
        return DTYPES[dtype], constants.ITEMSIZE[DTYPES[dtype]]
    except KeyError:
        raise ValueError(f"Tensor type {dtype} is not supported.") from None


class Binding(Protocol):
    """The operations of a framework on its tensors."""

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        """Return the framework's name of the element type, and the shape."""

    def plain(self, tensor: Any) -> Any:
        """Return a tensor whose values lie in the host's memory one after the other, else such a copy."""

    def address(self, tensor: Any) -> int:
        """Return where the values of a plain tensor lie."""

    def place(self, tensor: Any) -> Any:
        """Return type, shape and address of a tensor that is plain and takes a result, else None."""

    def takes(self, tensor: Any, dtype: str, shape: Sequence[int]) -> bool:
        """Report whether a result of a type and shape can be written to a tensor as plain memory."""

    def empty(self, shape: Sequence[int], like: Any) -> Any:
        """Return a new plain tensor of that shape and the type of another."""

    def finished(self, tensor: Any, like: Any) -> Any:
        """Return a tensor that empty() made, where another one is."""

    def overwrite(self, target: Any, tensor: Any) -> None:
        """Copy a tensor that empty() made into another."""

    def load(self, memory: memoryview, shape: Sequence[int], like: Any) -> Any:
        """Return a new tensor of that shape, otherwise like another, from memory that may be read-only."""


@dataclass
class Call:
    """What a caller wants, under complete names: one for each tensor, or one for all of them."""

    world: World
    process_set: ProcessSet
    tensors: Sequence[Any]
    targets: Sequence[Any] | None
    names: Sequence[str]
    then: Callable[[Any], Any]
    op: int = constants.SUM
    prescale: float = 1.0
    postscale: float = 1.0


class DevicePath(Protocol):
    """Operations on tensors where they are, in the memory of devices, for a framework that has such tensors.

    Each returns the handle of what it has started, None if the tensors go by the host. by_host starts that,
    and returns its handle; by_host(i) does so for a tensor that has a name of its own.
    """

    def holds(self, tensor: Any) -> bool:
        """Report whether a tensor lies on a device."""

    def allreduce(self, call: Call, by_host: Callable[[], int]) -> int | None:
        """Start what allreduce() does."""

    def broadcast(self, call: Call, root_rank: int, by_host: Callable[[], int]) -> int | None:
        """Start what broadcast() does."""

    def allgather(self, call: Call, by_host: Callable[[int], int]) -> int | None:
        """Start what allgather() does."""

    def reducescatter(self, call: Call, by_host: Callable[[int], int]) -> int | None:
        """Start what reducescatter() does."""

    def alltoall(
        self, call: Call, splits: Sequence[int], received: Sequence[int], by_host: Callable[[], int]
    ) -> int | None:
        """Start what alltoall() does.

        received: how many rows this rank expects from each. If that is wrong on any rank, the host has it.
        """


_device_path: DevicePath | None = None  # None: all tensors go by the host


def use_device_path(path: DevicePath | None) -> None:
    """Set what may carry tensors of devices."""
    global _device_path
    _device_path = path


def on_device(tensor: Any) -> bool:
    """Report whether a tensor lies on a device whose path may carry it."""
    return _device_path is not None and _device_path.holds(tensor)


def path_of(tensors: Sequence[Any]) -> DevicePath | None:
    """Return what may carry tensors where they are, None if they go by the host."""
    return _device_path if tensors and on_device(tensors[0]) else None
