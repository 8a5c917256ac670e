"""Python objects between the ranks of one job.

Objects travel as pickles, as in Horovod. The peers are the ranks of this job: one script, one user, over
links that authenticate what they carry; no listener of gorun unpickles anything. Do not load from a rank that
handles untrusted data what you would not load from that data.
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from gorun import basics, collectives
from gorun.exceptions import HorovodInternalError
from gorun.process_sets import ProcessSet, global_process_set

_PROTOCOL = 5  # the first that leaves memory out

# An object that offers its memory to pickle, such as an array, is sent as it is if it is that large, in
# pieces of so many bytes: each is copied only into the arena and out of it, while others are under way.
_OWN_WAY = 1 << 20
_PIECE = collectives.BATCH_BYTES


class _Bytes:
    """bindings.Binding for byte strings and other memory, one row a byte."""

    def describe(self, tensor: bytes | memoryview) -> tuple[str, tuple[int, ...]]:
        return "uint8", (len(tensor),)

    def plain(self, tensor: bytes | memoryview) -> bytes | memoryview:
        return bytes(tensor) if isinstance(tensor, memoryview) and tensor.readonly else tensor

    def address(self, tensor: bytes | memoryview) -> int:
        if isinstance(tensor, bytes):
            return ctypes.cast(ctypes.c_char_p(tensor), ctypes.c_void_p).value or 0
        return ctypes.addressof(ctypes.c_char.from_buffer(tensor))

    def takes(self, tensor: bytes | memoryview, dtype: str, shape: Sequence[int]) -> bool:
        return isinstance(tensor, memoryview) and not tensor.readonly and len(tensor) == shape[0]

    def empty(self, shape: Sequence[int], like: bytes | memoryview) -> memoryview:
        return memoryview(bytearray(shape[0]))

    def load(self, memory: memoryview, shape: Sequence[int], like: bytes) -> bytes:
        return bytes(memory)

    def finished(self, tensor: memoryview, like: bytes) -> bytes:
        return bytes(tensor)

    def overwrite(self, target: memoryview, tensor: memoryview) -> None:
        target[:] = tensor


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's object on every rank; the root gets its own back."""
    if root_rank not in process_set.members():
        raise ValueError(f"Root rank {root_rank} is not one of the {process_set.size()} ranks taking part.")
    # Only the root knows the size, and a gather lets it alone contribute: one round trip instead of two.
    is_root = basics.rank() == root_rank
    large: list[memoryview] = []
    data = _dumps(obj, large) if is_root else b""
    if large:
        data = _dumps(_Frame(data, [len(view) for view in large]))
    gathered, _ = _gather("broadcast_object", data, name, process_set)()
    if is_root:
        _broadcast(large, root_rank, name, process_set)
        return obj
    found = pickle.loads(gathered)
    if not isinstance(found, _Frame):
        return found
    large = [memoryview(bytearray(size)) for size in found.sizes]
    _broadcast(large, root_rank, name, process_set)
    return pickle.loads(found.data, buffers=large)


class _Frame:
    """A pickle of an object whose memory follows in pieces."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data = data
        self.sizes = sizes


def _broadcast(memories: list[memoryview], root: int, name: str | None, process_set: ProcessSet) -> None:
    pieces = [memory[at : at + _PIECE] for memory in memories for at in range(0, len(memory), _PIECE)]
    collectives.broadcast_all(_Bytes(), pieces, root, process_set, name)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return all ranks' objects in rank order."""
    return allgather_object_async(obj, name, process_set)()


def allgather_object_async(
    obj: Any,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    kind: str = "allgather_object",
) -> Callable[[], list[Any]]:
    """Start to gather all ranks' objects. The returned function waits for them.

    Its requests are named after its kind and its name.
    """
    result = _gather(kind, _dumps(obj), name, process_set)

    def wait() -> list[Any]:
        answer = result()
        if answer is None:
            raise HorovodInternalError("allgather_object: interrupted when it had ended")
        gathered, sizes = answer
        objects = []
        start = 0
        for size in sizes:
            objects.append(pickle.loads(memoryview(gathered)[start : start + size]))
            start += size
        return objects

    return wait


def _gather(
    kind: str, data: bytes, name: str | None, process_set: ProcessSet
) -> Callable[[], tuple[bytes, tuple[int, ...]]]:
    world = basics.world()
    handle = collectives.allgather(
        _Bytes(), [data], kind=kind, name=name, process_set=process_set, then=collectives.first
    )
    return lambda: world.synchronize(handle)


def _dumps(obj: Any, large: list[memoryview] | None = None) -> bytes:
    """Return a pickle. With a list, it moves large buffers of the object to that list."""

    def inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if len(view) < _OWN_WAY or large is None:
            return True
        large.append(view)
        return False

    try:
        return pickle.dumps(obj, _PROTOCOL, buffer_callback=inside)
    except (pickle.PicklingError, AttributeError, TypeError):
        try:
            import cloudpickle  # where it is installed, it also takes lambdas and local classes
        except ImportError:
            cloudpickle = None
        if cloudpickle is None:
            raise
        if large is not None:
            large.clear()
        return cloudpickle.dumps(obj, _PROTOCOL, buffer_callback=inside)
