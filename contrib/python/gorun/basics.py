"""init(), shutdown(), and the place of this process in the job."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from gorun import consequence, errors, spare
from gorun.exceptions import NotInitializedError
from gorun.session import Session
from gorun.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gorun.timeline import Timeline

# What front ends pass on as it is.
__all__ = [
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled",
    "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown", "size", "start_timeline",
    "stop_timeline", "sycl_built",
]  # fmt: skip

DYNAMIC = "DYNAMIC"  # the value of HOROVOD_TIMELINE that waits for start_timeline()

# What the environment says of a rank's place: the number of a session, and its names there.
PLACE = {
    "rank": ("GORUN_RANK", "HOROVOD_RANK", "RANK", "ROLE_RANK", "JAX_PROCESS_ID"),
    "size": (
        "GORUN_SIZE", "HOROVOD_SIZE", "WORLD_SIZE", "ROLE_WORLD_SIZE", "JAX_NUM_PROCESSES",
        "JAX_PROCESS_COUNT",
    ),
    "local_rank": ("GORUN_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "LOCAL_RANK"),
    "local_size": ("GORUN_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE"),
    "cross_rank": ("HOROVOD_CROSS_RANK", "CROSS_RANK"),
    "cross_size": ("HOROVOD_CROSS_SIZE", "CROSS_SIZE"),
}  # fmt: skip


class _State:
    world: World | None = None
    lives = 0  # how many worlds of this process had a timeline
    first_epoch = 0  # the number of the first world that this process was in
    process_sets: Any = None  # the argument of init()
    shown = False  # what the process runs on
    added: Any = None  # process sets added in this world and, in an elastic job, in earlier ones


_state = _State()  # the only state of the process


def world() -> World:
    """Return the world between init() and shutdown()."""
    current = _state.world
    if current is None:
        raise NotInitializedError
    return current


def init(comm: Sequence[int] | None = None, process_sets: Any = None) -> None:
    """Join the job; a second call does nothing. Without gorun this process is a world of one.

    comm is None or lists all ranks; pass process_sets to use some of them. Raises ValueError if joining
    fails.
    """
    _join(comm, process_sets, {})


def _join(comm: Sequence[int] | None, process_sets: Any, added: Any) -> None:
    if _state.world is not None:
        return
    if "GORUN_SPARE" in os.environ:
        from gorun import frameworks

        frameworks.load_ahead()
    try:
        session = Session.connect()
    except errors.GorunError as error:
        raise ValueError(f"Horovod initialization failed. {error}") from error
    if comm is not None and list(comm) not in ([], list(range(session.size))):
        session.close()
        raise ValueError("init(comm) takes all ranks or none: use process_sets for some of them")
    _correct_environment(session)
    _state.world = World(session)
    _state.first_epoch = _state.first_epoch or session.epoch
    _state.process_sets, _state.added = process_sets, added
    consequence.show_last()
    from gorun import process_sets as sets  # imports this module

    try:
        _state.world.timeline = _first_timeline(session)
        sets.setup(_state.world, process_sets, added)
    except BaseException:
        shutdown()
        raise
    if "GORUN_VERBOSE" in os.environ and not _state.shown:
        from gorun import frameworks

        _state.shown = True
        frameworks.show()


def _correct_environment(session: Session) -> None:
    """Set the variables of this process's place, if it was started before it had one."""
    if os.environ.pop("GORUN_SPARE", None):
        for number, names in PLACE.items():
            os.environ.update(dict.fromkeys(names, str(getattr(session, number))))


def shutdown() -> None:
    """Leave the job. init() may follow."""
    ended, _state.world = _state.world, None
    # A forked process shares the session of its parent, and must not end it.
    if ended is not None and ended.pid == os.getpid():
        ended.close()


def reset() -> None:
    """Leave this world and join the next, with the process sets of init() and of add_process_set()."""
    process_sets, added = _state.process_sets, _state.added
    shutdown()
    _join(None, process_sets, added)


def elastic() -> bool:
    """Report whether hosts may join and leave while this job runs."""
    return os.environ.get("HOROVOD_ELASTIC", "") not in ("", "0")


def added() -> dict[tuple[int, ...], Any]:
    """Return the process sets that this process added, by the ranks that the user asked for."""
    return _state.added


def late() -> bool:
    """Report whether the job had worlds before this process joined it."""
    return _state.first_epoch > 1


def _forked() -> None:
    """Leave a forked process without a world: the session belongs to its parent."""
    _state.world = None


atexit.register(shutdown)
os.register_at_fork(after_in_child=_forked)
spare.watch()


def _first_timeline(session: Session) -> Timeline | None:
    """Return the timeline that the environment asks for, by Horovod's variables."""
    file_path = os.environ.get("HOROVOD_TIMELINE", "")
    if not file_path or file_path.upper() == DYNAMIC:
        return None
    from gorun.timeline import Timeline

    mark_cycles = os.environ.get("HOROVOD_TIMELINE_MARK_CYCLES", "0") not in ("", "0")
    _state.lives += 1
    if _state.lives > 1:  # an elastic job's next world does not overwrite the record of the last
        stem, suffix = os.path.splitext(file_path)
        file_path = f"{stem}.{_state.lives}{suffix}"
    return Timeline(file_path, session, mark_cycles)


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record every operation in a file, each rank in its own, from now to stop_timeline()."""
    current = world()
    _check_dynamic()
    if current.timeline is not None:
        raise ValueError("a timeline is being recorded already: stop_timeline() ends it")
    from gorun.timeline import Timeline

    current.timeline = Timeline(file_path, current.session, mark_cycles)


def stop_timeline() -> None:
    """End the record that start_timeline() started."""
    current = world()
    _check_dynamic()
    ended, current.timeline = current.timeline, None
    if ended is not None:
        ended.close()


def _check_dynamic() -> None:
    if os.environ.get("HOROVOD_TIMELINE", "").upper() != DYNAMIC:
        raise ValueError("Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage.")


def is_initialized() -> bool:
    """Report whether init() was called and shutdown() has not followed."""
    return _state.world is not None


def rank() -> int:
    """Return the number of this process, 0 to size()-1."""
    return world().session.rank


def size() -> int:
    """Return the number of processes of the job."""
    return world().session.size


def local_rank() -> int:
    """Return the number of this process on its host, 0 to local_size()-1."""
    return world().session.local_rank


def local_size() -> int:
    """Return the number of processes on this host."""
    return world().session.local_size


def cross_rank() -> int:
    """Return this host's number among the hosts that have a process of this local rank."""
    return world().session.cross_rank


def cross_size() -> int:
    """Return the number of hosts that have a process of this local rank."""
    return world().session.cross_size


def is_homogeneous() -> bool:
    """Report whether every host runs the same number of processes, as far as this host knows."""
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


def sycl_built() -> bool:
    """Return False."""
    return False


class HorovodBasics:
    """The functions of this module as methods, as Horovod's own modules use them."""

    Average, Sum, Adasum, Min, Max, Product = range(6)

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        pass

    @staticmethod
    def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
        """Return the ranks of each process set by its number."""
        sets = {number: list(ranks) for number, ranks in world().process_sets.items()}
        return {0: list(range(size())), **sets}


for _name in ("init", *__all__):
    setattr(HorovodBasics, _name, staticmethod(globals()[_name]))
