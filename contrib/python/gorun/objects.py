"""Python objects between the ranks of one job.

Objects travel as pickles, as in Horovod. The peers are the ranks of this job: one script, one user, over
links the daemons authenticated; no listener of gorun unpickles anything. Do not load from a rank that
handles untrusted data what you would not load from that data.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from gorun import basics, collectives
from gorun.process_sets import ProcessSet, global_process_set


class _Bytes:
    """collectives.Binding for byte strings, one row a byte."""

    def describe(self, tensor: bytes) -> tuple[str, tuple[int, ...]]:
        return "uint8", (len(tensor),)

    def store(self, tensor: bytes, memory: memoryview) -> None:
        memory[:] = tensor

    def load(self, memory: memoryview, shape: Sequence[int], like: bytes) -> bytes:
        return bytes(memory)

    def load_into(self, memory: memoryview, tensor: bytes) -> None:
        raise TypeError("bytes cannot be overwritten")


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's object on every rank; the root gets its own back."""
    if root_rank not in process_set.members():
        raise ValueError(f"Root rank {root_rank} is not one of the {process_set.size()} ranks taking part.")
    # Only the root knows the size, and a gather lets it alone contribute: one round trip instead of two.
    is_root = basics.rank() == root_rank
    gathered, _ = _gather("broadcast_object", _dumps(obj) if is_root else b"", name, process_set)()
    return obj if is_root else pickle.loads(gathered)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return all ranks' objects in rank order."""
    return allgather_object_async(obj, name, process_set)()


def allgather_object_async(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[], list[Any]]:
    """Begin to gather all ranks' objects. What is returned waits for them."""
    result = _gather("allgather_object", _dumps(obj), name, process_set)

    def wait() -> list[Any]:
        gathered, sizes = result()
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


def _dumps(obj: Any) -> bytes:
    try:
        return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        try:
            import cloudpickle  # where it is installed, it also takes lambdas and local classes
        except ImportError:
            cloudpickle = None
        if cloudpickle is None:
            raise
        return cloudpickle.dumps(obj)
