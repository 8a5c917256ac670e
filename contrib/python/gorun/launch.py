"""run(): call a function on every rank of a new job, from Python.

The function travels as a pickle in the ranks' environment, which gorun sends to the hosts over the standard
input of ssh. The ranks print their results as marked lines, which come back over the same connections. So no
process listens, and run() unpickles only what a rank of this job has sealed. A function of a module travels
by its name: the module must exist on the hosts. What a script or a notebook defines travels by value, for
which cloudpickle must be here and on the hosts. Without it a script's functions travel by name too: as with
multiprocessing's "spawn", the ranks import the script, which must guard its call of run().
"""

from __future__ import annotations

import base64
import os
import pickle
import secrets
import shutil
import subprocess
import sys
import textwrap
import warnings
import zipimport
from collections.abc import Sequence
from multiprocessing import spawn
from typing import Any, Callable

import gorun
from gorun import arguments, sealed

# The kernel takes at most 128 KiB per variable of an environment, and 2 MiB for all of it.
PIECE = 96 << 10
LARGEST_CALL = 1 << 20

# Why a function does not travel without cloudpickle.
NEEDS = (
    ": only functions that can be imported, and plain values, reach the ranks; cloudpickle takes others too, "
    "where it is installed: pip install cloudpickle"
)

# Horovod's sentence, which programs look for.
FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
    "terminated: run {}: gorun ended with exit status {}"
)


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Run func(*args, **kwargs) on num_proc ranks and return their results, a list by rank.

    The arguments are Horovod's. An elastic job (min_num_proc, host_discovery_script) returns the results of
    its first min_num_proc ranks. use_gloo, use_mpi, mpi_args and disable_cache have no effect. Raises
    RuntimeError if the job fails, and ValueError if arguments contradict each other or func cannot be sent to
    the ranks.
    """
    ranks = _renamed("np", np, "num_proc", num_proc)
    least = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    most = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    interfaces = _renamed("network_interface", network_interface, "network_interfaces", network_interfaces)
    if hosts is not None and hostfile is not None:
        raise ValueError("run: hosts and hostfile both name the hosts: give one of them")
    if use_gloo and use_mpi:
        raise ValueError("run: use_gloo and use_mpi exclude each other")
    given = _HorovodArgs()
    given.num_proc, given.min_num_proc, given.max_num_proc, given.slots = ranks, least, most, slots
    given.reset_limit, given.cooldown_range = reset_limit, cooldown_range
    given.hosts, given.hostfile, given.host_discovery_script = hosts, hostfile, host_discovery_script
    given.ssh_port, given.ssh_identity_file = ssh_port, ssh_identity_file
    given.start_timeout, given.nics = start_timeout, interfaces
    given.output_filename, given.verbose, given.executable = output_filename, verbose, executable
    return _results(given, func, args, kwargs)


class _HorovodArgs:
    """The result of parse_args() for an empty command line. Scripts fill it in and call _run()."""

    def __init__(self) -> None:
        vars(self).update(arguments.nothing_said(), num_proc=1)


def _run(args: Any) -> list[Any] | None:
    """Run the job that the arguments describe; return the results of its run_func by rank."""
    if args.run_func is not None:
        return _results(args, args.run_func)
    command = args.command or []
    status = subprocess.call([binary(), *arguments.flags(args), *command])
    if status:
        raise RuntimeError(FAILED.format(command[0] if command else "no program", status))
    return None


def _results(
    given: Any, func: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
) -> list[Any]:
    name, key = getattr(func, "__name__", func), secrets.token_hex(16)
    if "_GORUN_CALL_MAIN" in os.environ:  # this is a rank, which imports the script that has called run()
        sys.exit(
            f"gorun: run {name}: ranks import this script, which calls run() again: move the call below "
            'if __name__ == "__main__":, or install cloudpickle, which sends functions without their script'
        )
    command = [binary(), *arguments.flags(given), given.executable or sys.executable, "-m", "gorun.call"]
    results, status = _start(command, _call(func, args, kwargs or {}, key), key)
    if status:
        raise RuntimeError(FAILED.format(name, status))
    wanted = range(given.min_num_proc or given.num_proc)
    missing = [rank for rank in wanted if rank not in results]
    if missing:
        raise RuntimeError(f"run {name}: no result came from ranks {missing}")
    return [results[rank] for rank in wanted]


def _renamed(old: str, given: Any, new: str, value: Any) -> Any:
    """Return an argument that the caller may also have given under Horovod's former name."""
    if given is None:
        return value
    warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=3)
    return given


def binary() -> str:
    """Return the gorun executable: GORUN's, a wheel's, the file this package is in, or the PATH's.

    A wheel comes before the file that this package is in: ranks import it from a file that on most hosts
    cannot launch jobs.
    """
    if named := os.environ.get("GORUN"):
        return named
    for folder in (os.path.dirname(gorun.__path__[0]), *sys.path):
        within = os.path.join(folder, "gorun", "bin", "gorun")
        if os.path.exists(within):
            return within
    loader = gorun.__spec__.loader
    if isinstance(loader, zipimport.zipimporter):
        return loader.archive
    found = shutil.which("gorun")
    if not found:
        raise FileNotFoundError("there is no gorun on the PATH; GORUN may name the executable")
    return found


def _call(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], key: str) -> dict[str, str]:
    """Return the environment in which ranks find what to call."""
    main = {
        key: value
        for key, value in spawn.get_preparation_data("gorun").items()
        if key in ("init_main_from_name", "init_main_from_path", "sys_path")
    }
    # What a notebook runs has no file, nor has what Python reads from standard input, whatever its name is.
    importable = "init_main_from_name" in main or os.path.isfile(main.get("init_main_from_path", ""))
    data, by_value, of_main = _dumps((func, tuple(args), kwargs), importable)
    if not of_main:
        main = {"sys_path": main["sys_path"]}
    if by_value:
        main["python"] = sys.version_info[:2]
    pieces = textwrap.wrap(data, PIECE)
    where = base64.b85encode(pickle.dumps(main)).decode()
    environ = {f"_GORUN_CALL_{i}": piece for i, piece in enumerate(pieces)}
    return {**environ, "_GORUN_CALL": str(len(pieces)), "_GORUN_CALL_MAIN": where, "_GORUN_CALL_KEY": key}


def _dumps(call: Any, importable: bool) -> tuple[str, bool, bool]:
    """Return a pickle, whether parts of it are there by value, and whether it names parts of the main module.

    cloudpickle comes first: only it sends by value what the main module defines.
    """
    try:
        import cloudpickle

        picklers, needs = [cloudpickle.dumps, pickle.dumps], ""
    except ImportError:
        picklers, needs = [pickle.dumps], NEEDS
    whys: list[str] = []
    for dumps in picklers:
        try:
            found = dumps(call)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            whys.append(f"{error}{needs}")
            continue
        named = dumps is pickle.dumps and b"__main__" in found or b"__mp_main__" in found
        data = base64.b85encode(found).decode()
        if named and not importable:
            whys.append(f"a notebook, or standard input, defines it, which ranks cannot import{needs}")
        elif len(data) > LARGEST_CALL:
            whys.append(
                f"function and arguments are {len(data)} bytes, more than fit in an environment: "
                "let the function read large data from a file"
            )
        else:
            return data, dumps is not pickle.dumps and b"cloudpickle" in found, named
    raise ValueError(f"run {call[0]}: {whys[0]}")


def _start(command: Sequence[str], environ: dict[str, str], key: str) -> tuple[dict[int, Any], int]:
    """Run a job, forward its output, and return the ranks' results and its exit status."""
    reader = sealed.Reader(key, sys.stdout)
    with subprocess.Popen(
        command, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        errors="surrogateescape",
    ) as job:  # fmt: skip
        assert job.stdout is not None
        for line in job.stdout:
            reader.take(line)
        status = job.wait()
    sys.stdout.flush()
    if reader.broken is not None:
        raise reader.broken
    return {int(source.rpartition("/")[2]): it for source, it in reader.found.items()}, status
