"""run() and run_elastic(): a function on the ranks of a job, in the slots that Spark has room for."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from pyspark import SparkContext, cloudpickle

from gorun.seats import job
from gorun.seats.hostlist import HostList
from gorun.seats.step import PYTHON
from gorun.spark import member
from gorun.spark.outcome import Outcomes
from gorun.spark.tasks import Rooms, Tasks

RANK = ("sh", "-c", f'exec "${PYTHON}" -u -m gorun.seats.rank')
START_SECONDS = 600  # for Spark to find room and start the tasks
DAEMONS_SECONDS = 60  # of these for gorun's daemons, once the tasks run
ELASTIC_SECONDS = 600
LOOK_SECONDS = 0.2
END_SECONDS = 20.0  # for tasks to end that Spark is to end

__all__ = ["run", "run_elastic"]


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: int | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: Sequence[str] | str | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Call fn(*args, **kwargs) on num_proc ranks at a time, in tasks of Spark; return the results by rank.

    num_proc is spark.default.parallelism by default; start_timeout is HOROVOD_SPARK_START_TIMEOUT, or 600
    seconds. use_mpi, use_gloo, extra_mpi_args and executable have no effect. Raises RuntimeError, which names
    a rank that failed.
    """
    count = _active("run").defaultParallelism if num_proc is None else num_proc
    if count < 1:
        raise ValueError(f"run: a job has at least 1 process, not {count}")
    options = _Options(start_timeout, env, stdout, stderr, verbose, nics, prefix_output_with_timestamp)
    return _follow("run", (fn, tuple(args), dict(kwargs or {})), (count, count, count), options)


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: int | None = None,
    elastic_timeout: int | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: Sequence[str] | str | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Call fn(*args, **kwargs) on the ranks of an elastic job; return the results of its last world, by rank.

    The job begins with num_proc ranks, or after start_timeout seconds with at least min_num_proc. It survives
    the loss of executors, and adds ranks on new ones, up to max_num_proc. num_proc is
    spark.default.parallelism by default, and the other two are num_proc. Raises RuntimeError, which names a
    rank that made the job fail.
    """
    size = sizes(
        _active("run_elastic").defaultParallelism if num_proc is None else num_proc,
        min_np if min_num_proc is None else min_num_proc, max_np if max_num_proc is None else max_num_proc,
    )  # fmt: skip
    if elastic_timeout is None:
        elastic_timeout = int(os.environ.get("HOROVOD_ELASTIC_TIMEOUT", ELASTIC_SECONDS))
    flags = [
        "--min-np", str(size[1]), "--max-np", str(size[2]), "--elastic-timeout", str(elastic_timeout),
        *([] if reset_limit is None else ["--reset-limit", str(reset_limit)]),
    ]  # fmt: skip
    options = _Options(start_timeout, env, stdout, stderr, verbose, nics, prefix_output_with_timestamp)
    return _follow("run_elastic", (fn, tuple(args), dict(kwargs or {})), size, options, flags)


def sizes(count: int, least: int | None, most: int | None) -> tuple[int, int, int]:
    """Return the size of the job at its begin, its least and its greatest."""
    least, most = count if least is None else least, count if most is None else most
    if not 1 <= least <= count <= most:
        raise ValueError(
            "run_elastic: a job has 1 <= min_num_proc <= num_proc <= max_num_proc, "
            f"not {least}, {count}, {most}"
        )
    return count, least, most


def begins(slots: int, count: int, least: int, late: bool) -> bool:
    """Report whether a job begins with so many slots."""
    return slots >= count or late and slots >= least


def placed(slots: Mapping[str, int], count: int) -> str:
    """Return so many of the slots, as gorun's -H."""
    hosts = []
    for host, there in slots.items():
        if count > 0:
            hosts.append(f"{host}:{min(there, count)}")
            count -= there
    return ",".join(hosts)


@dataclasses.dataclass
class _Options:
    """What run() and run_elastic() both take."""

    start_timeout: int | None
    env: Mapping[str, str] | None
    stdout: TextIO | None
    stderr: TextIO | None
    verbose: int
    nics: Sequence[str] | str | None
    timestamps: bool

    def seconds(self) -> float:
        """Return how long Spark may take to start all tasks."""
        if self.start_timeout is None:
            return float(os.environ.get("HOROVOD_SPARK_START_TIMEOUT", START_SECONDS))
        return float(self.start_timeout)

    def environ(self) -> dict[str, str]:
        """Return the variables, whose values a program may give as numbers."""
        return {str(name): str(value) for name, value in (self.env or {}).items()}

    def flags(self) -> list[str]:
        """Return gorun's flags for them."""
        flags = ["--start-timeout", str(math.ceil(min(self.seconds(), DAEMONS_SECONDS)))]
        if self.nics:
            nics = self.nics if isinstance(self.nics, str) else ",".join(sorted(self.nics))
            flags += ["--network-interfaces", nics]
        flags += ["-v"] if self.verbose > 1 else []
        return flags + (["--prefix-output-with-timestamp"] if self.timestamps else [])


def _active(caller: str) -> SparkContext:
    """Return the context of this session."""
    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError(
            f"{caller}: there is no SparkContext (hint: SparkSession.builder.getOrCreate() comes first)"
        )
    return context


def _follow(
    caller: str, call: tuple[Any, ...], size: tuple[int, int, int], options: _Options,
    elastic: Sequence[str] | None = None,
) -> list[Any]:  # fmt: skip
    """Call a function on the ranks of a job, in the tasks that Spark has room for; return the results.

    Spark is asked for the most tasks. elastic are the flags of a job that follows them. RuntimeError or
    TimeoutError if the job fails.
    """
    context, (count, least, most) = _active(caller), size
    token, key, environ = job.new_token(), job.new_token(), options.environ()
    outcomes = Outcomes(caller, key, options.stdout or sys.stdout)
    address = context.getConf().get("spark.driver.host") or "127.0.0.1"
    running: job.Job | None = None
    limit = time.monotonic() + options.seconds()
    with contextlib.ExitStack() as ends:  # the last one comes first
        hosts = ends.enter_context(contextlib.closing(HostList()))
        tasks = Tasks(token, context.getConf().get("spark.driver.bindAddress") or address)
        ends.callback(tasks.close)
        tell = member.machine if elastic is None else member.executor
        membership = member.Membership(
            (address, tasks.port), token, key, cloudpickle.dumps(call), environ, tell
        )
        rooms = Rooms(context, most, f"gorun-{job.new_token()}", member.work(membership))
        ends.callback(rooms.cancel, END_SECONDS)
        ends.callback(tasks.end, END_SECONDS)
        ends.callback(lambda: running and running.stop())
        ends.callback(rooms.stop)
        while running is None or not running.ended():
            slots = tasks.slots()
            hosts.write(slots)
            late = time.monotonic() > limit
            if running is None and begins(sum(slots.values()), count, least, late):
                if elastic is None:
                    where = ["-np", str(count), "-H", placed(slots, count)]
                else:
                    where = ["--host-discovery-script", hosts.command, *elastic]
                flags = [*options.flags(), *where]
                running = job.Job(flags, "", tasks.start, environ, RANK, outcomes.take, options.stderr)
            elif running is None and tasks.unable:
                raise RuntimeError(f"{caller}: {tasks.unable}")
            elif running is None and late:
                why = f"; {reason(rooms.failure)}" if rooms.failure else ""
                raise TimeoutError(
                    f"{caller}: Spark has room for {sum(slots.values())} tasks at a time, and the job begins "
                    f"with {least}, after {options.seconds():g} s{why} (hint: fewer processes, or more "
                    "executors)"
                )
            time.sleep(LOOK_SECONDS)
        if running.wait():
            raise outcomes.failure(running.failure())
    return outcomes.results(count if elastic is None else 0)


def reason(error: BaseException) -> str:
    """Return the line of Spark's error that says why a task failed: Python's, or else its own reason."""
    lines = re.findall(r"^\w+(?:Error|Exception): .*|(?<=most recent failure: ).*", str(error), re.MULTILINE)
    return str(lines[-1]) if lines else (str(error).strip() or "Spark gave no reason").splitlines()[0]
