"""Process sets: collectives among some of the ranks.

In an elastic job a process set outlives the world in which it was added. Each new world agrees on the sets
that any of its ranks knows. When a new rank calls add_process_set() for one of them, it gets that set at
once: the other ranks need not call it again.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gorun import basics, errors
from gorun.exceptions import HorovodInternalError

if TYPE_CHECKING:
    from gorun.world import World

NOBODY = -1  # the number of a set without members
DUPLICATE = "Attempted to add a duplicate process set"
UNREGISTERED = "Process set provided does not exist, or has not been registered"


class ProcessSet:
    """Some of the ranks. A set is usable once init() or add_process_set() has registered it."""

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        self.process_set_id: int | None = None
        self.ranks: list[int] | None = sorted(ranks_or_comm)
        self._wanted = self.ranks  # what the user asked for; a world of an elastic job may lack some
        self.mpi_comm = None

    def members(self) -> list[int]:
        """Return the members' global ranks in order."""
        if self.process_set_id is None or self.ranks is None:
            raise ValueError(UNREGISTERED)
        return self.ranks

    def size(self) -> int:
        """Return the number of members."""
        return len(self.members())

    def rank(self) -> int:
        """Return this process's number among the members."""
        if not self.included():
            raise ValueError(f"Rank {basics.rank()} is not a member of the provided process set.")
        return self.members().index(basics.rank())

    def included(self) -> bool:
        """Report whether this process is a member."""
        return basics.rank() in self.members()

    def group(self) -> int:
        """Return the number under which this process submits operations; ValueError if it is no member."""
        self.rank()
        return self.process_set_id or 0

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm=None)"


class _GlobalProcessSet(ProcessSet):
    """All ranks of the present world."""

    def __init__(self) -> None:
        self.process_set_id = 0
        self.mpi_comm = None
        self._wanted = None

    @property
    def ranks(self) -> list[int] | None:  # type: ignore[override]
        """The global ranks of the present world, None before init()."""
        return self.members() if basics.is_initialized() else None

    def members(self) -> list[int]:
        return list(range(basics.size()))

    def size(self) -> int:
        return basics.size()

    def rank(self) -> int:
        return basics.rank()

    def included(self) -> bool:
        return basics.rank() >= 0

    def group(self) -> int:
        return 0


global_process_set = _GlobalProcessSet()


def setup(world: World, process_sets: Any, added: dict[tuple[int, ...], Any]) -> None:
    """Register the process sets of init(), a list or "dynamic", and the ones added in earlier worlds."""
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError('process_sets is a list of process sets or "dynamic"')
        process_sets = ()
        world.dynamic_process_sets = True
    elif os.environ.get("HOROVOD_DYNAMIC_PROCESS_SETS", "").lower() in ("1", "y", "yes", "t", "true"):
        world.dynamic_process_sets = True
    for process_set in process_sets or ():
        if process_set is global_process_set:
            continue
        if not (basics.elastic() and _fit(world, process_set)):
            _register(world, process_set)
    if basics.elastic() and world.dynamic_process_sets:
        _inherit(world, added)


def _inherit(world: World, added: dict[tuple[int, ...], Any]) -> None:
    from gorun.objects import allgather_object  # imports this module

    answers = allgather_object(list(added), "process sets of worlds before")
    for wanted in dict.fromkeys(itertools.chain(*answers)):
        world.added[wanted] = known = ProcessSet(wanted)
        if not _fit(world, known):
            _register(world, known)
        for process_set in added.setdefault(wanted, weakref.WeakSet()):
            _liken(world, process_set, known)


def _liken(world: World, process_set: ProcessSet, known: ProcessSet) -> None:
    process_set.ranks, process_set.process_set_id = known.ranks, known.process_set_id
    world.registered.append(process_set)


def _fit(world: World, process_set: ProcessSet) -> bool:
    """Drop the ranks that this world lacks. Report whether the set then needs no group of its own.

    In each new world all ranks, old and new, register the process sets of init(), so that they agree.
    """
    ranks = process_set.ranks = [rank for rank in process_set._wanted or () if rank < world.session.size]
    same = [number for number, members in world.process_sets.items() if members == ranks]
    if not ranks:
        process_set.process_set_id = NOBODY
    elif len(ranks) == world.session.size:
        process_set.process_set_id = 0
    elif same:
        process_set.process_set_id = same[0]
    else:
        return False
    world.registered.append(process_set)
    return True


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Register a process set and return it. All ranks, members or not, must call this in the same order."""
    world = basics.world()
    if not world.dynamic_process_sets:
        raise ValueError(
            "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding process sets after Horovod initialization."
        )
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set is global_process_set:
        raise ValueError(DUPLICATE)
    if not basics.elastic():
        _register(world, process_set)
        return process_set
    wanted = tuple(process_set._wanted or ())
    if wanted in world.added:  # older ranks added it, or an earlier world did
        _liken(world, process_set, world.added[wanted])
    else:
        if not _fit(world, process_set):
            _register(world, process_set)
        world.added[wanted] = process_set
    basics.added().setdefault(wanted, weakref.WeakSet()).add(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set; all ranks must call this. Report whether the set was registered."""
    world = basics.world()
    if not world.dynamic_process_sets:
        raise ValueError(
            "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow removing process sets after Horovod initialization."
        )
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    wanted = tuple(process_set._wanted or ())
    world.added.pop(wanted, None)
    basics.added().pop(wanted, None)
    number = process_set.process_set_id
    for same in (process_set, *world.registered):
        if same.process_set_id == number and same._wanted == process_set._wanted:
            same.process_set_id = None
    if number not in world.process_sets:  # the world is so small that the set is all ranks, or none
        return True
    if any(other.process_set_id == number for other in world.added.values()):
        return True  # the world is so small that another set has the same members
    try:
        world.session.remove_group(number)
    except errors.InvalidArgument:
        raise
    except errors.GorunError as error:
        raise HorovodInternalError(str(error)) from error
    del world.process_sets[number]
    return True


def _register(world: World, process_set: ProcessSet) -> None:
    ranks = process_set.ranks
    if not ranks or len(set(ranks)) != len(ranks) or ranks[0] < 0 or ranks[-1] >= world.session.size:
        raise ValueError(f"a process set names ranks from 0 to {world.session.size - 1}, each once: {ranks}")
    if ranks in world.process_sets.values() or len(ranks) == world.session.size:
        raise ValueError(DUPLICATE)
    world.process_sets[_add(world, process_set, ranks)] = ranks


def declare(ranks: Iterable[int], number: int) -> ProcessSet:
    """Return a process set that only its members know; all of them call this with the same number."""
    process_set = ProcessSet(ranks)
    _add(basics.world(), process_set, process_set.ranks or [], number)
    return process_set


def _add(world: World, process_set: ProcessSet, ranks: list[int], number: int = 0) -> int:
    try:
        process_set.process_set_id = world.session.add_group(ranks, number)
    except errors.InvalidArgument:
        raise
    except errors.GorunError as error:
        raise HorovodInternalError(str(error)) from error
    world.registered.append(process_set)
    return process_set.process_set_id
