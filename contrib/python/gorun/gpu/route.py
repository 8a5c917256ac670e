"""The path of a world: its ranks agree on it when the first of their tensors lies on a GPU."""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from gorun.gpu import driver, path
from gorun.gpu.group import Group
from gorun.gpu.hierarchy import Hierarchy
from gorun.gpu.ipc import Ipc
from gorun.objects import allgather_object_async

if TYPE_CHECKING:
    from gorun.world import World

_routes: weakref.WeakKeyDictionary[World, Route] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Route:
    """The agreement of a world, with this rank's device."""

    def __init__(self, world: World, ordinal: int, wanted: str) -> None:
        self.ordinal = ordinal
        self._world = weakref.ref(world)
        self._wanted = wanted
        self._lock = threading.Lock()
        self._group: Group | Hierarchy | Ipc | None = None
        self._settled = False
        facts = path.look(os.environ.get("HOROVOD_HOSTNAME") or os.uname().nodename, ordinal, wanted)
        self._gathered: Callable[[], list[path.Facts]] = allgather_object_async(facts, "gorun.gpu.path")

    def settle(self) -> Group | Hierarchy | Ipc | None:
        """Return the group of the ranks; None if tensors go by the host."""
        with self._lock:
            if not self._settled:
                self._group, self._settled = self._settle(), True
            return self._group

    def _settle(self) -> Group | Hierarchy | Ipc | None:
        ranks = self._gathered()
        world = self._world()
        if world is None:
            return None
        choice = path.choose(self._wanted, ranks)
        if "GORUN_VERBOSE" in os.environ and world.session.local_rank == 0:
            host = ranks[world.session.rank].host
            print(f"gorun: {host}: tensors on GPUs go by {choice.path}: {choice.why}", file=sys.stderr)
        if choice.path == path.HOST:
            return None
        device = driver.device(self.ordinal)
        if choice.path == path.HIERARCHICAL:
            return Hierarchy(world, device, path.by_host(ranks))
        if choice.path == path.IPC:
            return Ipc(world, device, path.by_gpu(ranks))
        return Group(world, device)


def route(world: World, ordinal: int) -> Route:
    """Return the route of a world. The first call of a rank starts the agreement, with its device."""
    with _lock:
        if world not in _routes:
            _routes[world] = Route(world, ordinal, path.asked())
            world.on_close(functools.partial(_routes.pop, world, None))  # the route's group refers to it
        return _routes[world]


def begun(world: World) -> bool:
    """Report whether this rank takes part in the agreement of a world already."""
    return world in _routes
