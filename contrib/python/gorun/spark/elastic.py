"""run_elastic(): a function on the ranks of a job that follows the tasks that Spark has room for."""

from __future__ import annotations

import base64
import contextlib
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TextIO

from pyspark import SparkContext, cloudpickle

from gorun import sealed
from gorun.seats import job
from gorun.seats.hostlist import HostList
from gorun.seats.step import PYTHON
from gorun.spark import member, outcome
from gorun.spark.runner import (
    DAEMONS_SECONDS,
    END_SECONDS,
    LOOK_SECONDS,
    active,
    reason,
    start_seconds,
    texts,
)
from gorun.spark.tasks import Rooms, Tasks

RANK = ("sh", "-c", f'exec "${PYTHON}" -u -m gorun.seats.rank')
ELASTIC_SECONDS = 600

__all__ = ["run_elastic"]


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
    context = active("run_elastic")
    count, least, most = sizes(
        context.defaultParallelism if num_proc is None else num_proc,
        min_np if min_num_proc is None else min_num_proc, max_np if max_num_proc is None else max_num_proc,
    )  # fmt: skip
    seconds = start_seconds(start_timeout)
    if elastic_timeout is None:
        elastic_timeout = int(os.environ.get("HOROVOD_ELASTIC_TIMEOUT", ELASTIC_SECONDS))
    hosts = HostList()
    flags = [
        "--min-np", str(least), "--max-np", str(most), "--host-discovery-script", hosts.command,
        "--elastic-timeout", str(elastic_timeout),
        "--start-timeout", str(math.ceil(min(seconds, DAEMONS_SECONDS))),
    ]  # fmt: skip
    flags += [] if reset_limit is None else ["--reset-limit", str(reset_limit)]
    if nics:
        flags += ["--network-interfaces", nics if isinstance(nics, str) else ",".join(sorted(nics))]
    flags += ["-v"] if verbose > 1 else []
    flags += ["--prefix-output-with-timestamp"] if prefix_output_with_timestamp else []
    try:
        call = cloudpickle.dumps((fn, tuple(args), dict(kwargs or {})))
        outcomes = Outcomes(job.new_token(), stdout or sys.stdout)
        _follow(context, (count, least, most), seconds, hosts, flags, call, texts(env), outcomes, stderr)
    finally:
        hosts.close()
    return outcomes.results()


def sizes(count: int, least: int | None, most: int | None) -> tuple[int, int, int]:
    """Return the size of the job at its begin, its least and its greatest."""
    least, most = count if least is None else least, count if most is None else most
    if not 1 <= least <= count <= most:
        raise ValueError(
            "run_elastic: a job has 1 <= min_num_proc <= num_proc <= max_num_proc, "
            f"not {least}, {count}, {most}"
        )
    return count, least, most


class Outcomes:
    """Finds the outcomes of ranks in their output, and passes the rest of it on."""

    def __init__(self, key: str, output: TextIO) -> None:
        self.key = key
        self._mark = sealed.mark(key)
        self._output = output
        self._parts: dict[str, list[str]] = {}
        self.found: list[outcome.Outcome] = []
        self._broken: Exception | None = None  # the first failure to take a line

    def take(self, line: str) -> None:
        """Take a line of output. What fails comes from results(): gorun's output is read on."""
        try:
            self._take(line)
        except Exception as error:
            self._broken = self._broken or error

    def _take(self, line: str) -> None:
        _, found, after = line.partition(self._mark + " ")
        if not found:
            self._output.write(line)
            return
        if len(after.split()) != 3:  # somebody prints the mark
            return
        process, last, data = after.split()
        self._parts.setdefault(process, []).append(data)
        if last == "1":
            text = "".join(self._parts.pop(process))
            self.found.append(sealed.unseal(self.key, process, base64.b64decode(text)))

    def cause(self) -> outcome.Outcome | None:
        """Return the last error of a rank, if there is one that is no consequence of another's."""
        wrong = [found for found in self.found if found.error]
        causes = [found for found in wrong if not found.consequence] or wrong
        return causes[-1] if causes else None

    def results(self) -> list[Any]:
        """Return the results of the last world by rank; RuntimeError if one is missing."""
        if self._broken:
            raise RuntimeError(
                f"run_elastic: the output of a rank, or its result, cannot be taken: {self._broken!r}"
            ) from self._broken
        good = [found for found in self.found if not found.error]
        if not good:
            raise RuntimeError("run_elastic: the job has ended, and no rank has a result")
        size = good[-1].size  # a rank that ended in a world before has no part in the last one
        by_rank = {found.rank: found.result for found in good if found.size == size or not size}
        missing = sorted(set(range(size)) - set(by_rank))
        if missing:
            raise RuntimeError(
                f"run_elastic: rank {missing[0]} of {size} has ended well, but without a result: "
                "does its function end the process?"
            )
        return [by_rank[number] for number in sorted(by_rank)]


def begins(slots: int, count: int, least: int, late: bool) -> bool:
    """Report whether a job begins with so many slots."""
    return slots >= count or late and slots >= least


def _follow(
    context: SparkContext,
    size: tuple[int, int, int],
    seconds: float,
    hosts: HostList,
    flags: Sequence[str],
    call: bytes,
    environ: Mapping[str, str],
    outcomes: Outcomes,
    stderr: TextIO | None,
) -> None:
    """Run the job on the tasks that Spark has room for; RuntimeError or TimeoutError if it fails."""
    count, least, most = size
    token = job.new_token()
    address = context.getConf().get("spark.driver.host") or "127.0.0.1"
    running: job.Job | None = None
    limit = time.monotonic() + seconds
    with contextlib.ExitStack() as ends:  # the last one comes first
        tasks = Tasks(token, context.getConf().get("spark.driver.bindAddress") or address)
        ends.callback(tasks.close)
        membership = member.Membership(
            (address, tasks.port), token, outcomes.key, call, environ, member.executor
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
                running = job.Job(flags, "", tasks.start, environ, RANK, outcomes.take, stderr)
            elif running is None and tasks.unable:
                raise RuntimeError(f"run_elastic: {tasks.unable}")
            elif running is None and late:
                why = f"; {reason(rooms.failures)}" if rooms.failures else ""
                raise TimeoutError(
                    f"run_elastic: Spark has room for {sum(slots.values())} tasks at a time, and the job "
                    f"begins with {least}, after {seconds:g} s{why} (hint: a smaller min_num_proc, or more "
                    "executors)"
                )
            time.sleep(LOOK_SECONDS)
        status = running.wait()
    if status:
        cause = outcomes.cause()
        if cause is not None:
            raise RuntimeError(
                f"run_elastic: rank {cause.rank} on {cause.host}: {cause.error}; {running.failure()}\n"
                f"{cause.text}"
            )
        raise RuntimeError(f"run_elastic: {running.failure()}")
