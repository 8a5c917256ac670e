"""What a framework tells gorun about its tensors, and what carries those that lie on devices."""

from __future__ import annotations

from collections.abc import Sequence
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
    """The operations of a framework on its tensors. memory has exactly the bytes of the tensor."""

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        """Return the framework's name of the element type, and the shape."""

    def store(self, tensor: Any, memory: memoryview) -> None:
        """Copy a tensor with any strides to memory; it is not empty."""

    def load(self, memory: memoryview, shape: Sequence[int], like: Any) -> Any:
        """Return a new tensor of that shape, otherwise like another, from memory that may be read-only."""

    def load_into(self, memory: memoryview, tensor: Any) -> None:
        """Overwrite a tensor from memory; it is not empty."""

    # Only frameworks whose tensors are reduced need the following methods.

    def gather(self, tensors: Sequence[Any], memory: memoryview) -> None:
        """Copy tensors of one type to memory, one after the other."""

    def scatter(
        self, memory: memoryview, itemsize: int, counts: Sequence[int], tensors: Sequence[Any]
    ) -> None:
        """Overwrite tensors of one type, with these numbers and sizes of elements, from memory."""

    def empty(self, shape: Sequence[int], like: Any) -> Any:
        """Return a new tensor of that shape, otherwise like another, for scatter() to overwrite."""

    def cell(self, memory: memoryview, like: Any) -> Cell:
        """Return what moves tensors of the type and shape of another to and from memory, again and again."""

    adds: bool
    """Whether the framework can add up tensors that lie in slots, by sums.Inputs."""

    def flat(self, tensor: Any) -> Any:
        """Return a flat array of NumPy's over the memory of a tensor, None if that is not possible.

        Only a framework that adds has it.
        """


class Cell(Protocol):
    """Memory for tensors of one type and shape."""

    def fits(self, tensor: Any) -> bool:
        """Report whether a tensor is of that type and shape."""

    def put(self, tensor: Any) -> None:
        """Copy a tensor that fits to the memory."""

    def get(self, like: Any, target: Any | None) -> Any:
        """Return the content of the memory, as a new tensor otherwise like another, or in target."""


class DevicePath(Protocol):
    """Operations on tensors where they are, in the memory of devices, for a framework that has such tensors.

    by_host starts the operation on the path by the host, and returns its handle.
    """

    def holds(self, tensor: Any) -> bool:
        """Report whether a tensor lies on a device."""

    def allreduce(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, name: str, op: int,
        prescale: float, postscale: float, process_set: ProcessSet, then: Callable[[Any], Any],
        by_host: Callable[[], int],
    ) -> int | None:  # fmt: skip
        """Start what allreduce() does, under a complete name; None if it goes by the host."""

    def broadcast(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, root_rank: int, name: str,
        process_set: ProcessSet, then: Callable[[Any], Any], by_host: Callable[[], int],
    ) -> int | None:  # fmt: skip
        """Start what broadcast() does, under a complete name; None if it goes by the host."""

    # Each tensor has a name of its own here, and goes by the host alone: by_host(i) starts it.

    def allgather(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, names: Sequence[str],
        process_set: ProcessSet, then: Callable[[Any], Any], by_host: Callable[[int], int],
    ) -> int | None:  # fmt: skip
        """Start what allgather() does; None if it goes by the host."""

    def reducescatter(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, names: Sequence[str],
        op: int, prescale: float, postscale: float, process_set: ProcessSet, then: Callable[[Any], Any],
        by_host: Callable[[int], int],
    ) -> int | None:  # fmt: skip
        """Start what reducescatter() does; None if it goes by the host."""

    def alltoall(
        self, world: World, tensor: Any, target: Any, splits: Sequence[int], received: Sequence[int],
        name: str, process_set: ProcessSet, then: Callable[[Any], Any], by_host: Callable[[], int],
    ) -> int | None:  # fmt: skip
        """Start what alltoall() does; None if it goes by the host.

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
