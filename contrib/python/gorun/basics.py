"""init(), shutdown(), and where this process stands in the job."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from gorun import errors
from gorun.exceptions import NotInitializedError
from gorun.session import Session
from gorun.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

class _State:
    world: World | None = None


_state = _State()  # the one thing that belongs to the process


def world() -> World:
    """Return the world between init() and shutdown()."""
    current = _state.world
    if current is None:
        raise NotInitializedError
    return current


def init(comm: Sequence[int] | None = None, process_sets: Any = None) -> None:
    """Join the job; a second call does nothing. Without gorun this process is a world of one.

    comm may name all ranks; a part of them is what process sets are for.
    """
    if _state.world is not None:
        return
    try:
        session = Session.connect()
    except errors.GorunError as error:
        raise ValueError(f"Horovod initialization failed. {error}") from error
    if comm is not None and list(comm) not in ([], list(range(session.size))):
        session.close()
        raise ValueError("init(comm) takes all ranks or none: use process_sets for some of them")
    _state.world = World(session)
    from gorun import process_sets as sets  # it needs this module

    try:
        sets.setup(_state.world, process_sets)
    except BaseException:
        shutdown()
        raise


def shutdown() -> None:
    """Leave the job. init() may follow."""
    ended, _state.world = _state.world, None
    # A fork shares the session of its parent, and must not end it.
    if ended is not None and ended.pid == os.getpid():
        ended.session.close()


atexit.register(shutdown)


def is_initialized() -> bool:
    """Report whether init() was called, and shutdown() not since."""
    return _state.world is not None


def rank() -> int:
    """Return the number of this process, 0 to size()-1."""
    return world().session.rank


def size() -> int:
    """Return the number of processes of the job."""
    return world().session.size


def local_rank() -> int:
    """Return the number of this process among those of its host."""
    return world().session.local_rank


def local_size() -> int:
    """Return the number of processes on this host."""
    return world().session.local_size


def cross_rank() -> int:
    """Return the number of this host among those that have a process of this local rank."""
    return world().session.cross_rank


def cross_size() -> int:
    """Return the number of hosts that have a process of this local rank."""
    return world().session.cross_size


def is_homogeneous() -> bool:
    """Report whether every host runs the same number of processes, as far as this host can tell."""
    session = world().session
    return session.local_size * session.cross_size == session.size


def mpi_threads_supported() -> bool:
    """Raise ValueError, as Horovod does without MPI."""
    world()
    raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")


def mpi_enabled() -> bool:
    """Return False: there is no MPI."""
    return False


def mpi_built() -> bool:
    """Return False: there is no MPI."""
    return False


def gloo_enabled() -> bool:
    """Return True: the engine takes the place of Gloo."""
    return True


def gloo_built() -> bool:
    """Return True: the engine takes the place of Gloo."""
    return True


def nccl_built() -> int:
    """Return 0: NCCL is not used."""
    return 0


def ddl_built() -> bool:
    """Return False."""
    return False


def ccl_built() -> bool:
    """Return False."""
    return False


def cuda_built() -> bool:
    """Return False: CUDA tensors work, through host memory."""
    return False


def rocm_built() -> bool:
    """Return False."""
    return False
