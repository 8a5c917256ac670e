"""run(): a function on tasks of Spark, which are the ranks of a job."""

from __future__ import annotations

import math
import os
import pickle
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from pyspark import InheritableThread, SparkContext

from gorun.seats import job
from gorun.spark import outcome, task

START_VARIABLE = "HOROVOD_SPARK_START_TIMEOUT"
START_SECONDS = 600  # for Spark to find room and start the tasks
DAEMONS_SECONDS = 60  # of these for gorun's daemons, once the tasks run
LOOK_SECONDS = 0.2

__all__ = ["run"]


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
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Sequence[str] | str | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Call fn(*args, **kwargs) on num_proc tasks of Spark at a time; return the results by rank.

    num_proc is spark.default.parallelism by default; start_timeout is HOROVOD_SPARK_START_TIMEOUT, or 600
    seconds. The executors' logs have what functions print. use_mpi, use_gloo, extra_mpi_args, stdout, stderr,
    prefix_output_with_timestamp and executable have no effect. Raises RuntimeError, which names a rank that
    failed.
    """
    context = active()
    count = context.defaultParallelism if num_proc is None else num_proc
    if count < 1:
        raise ValueError(f"run: a job has at least 1 process, not {count}")
    seconds = start_seconds(start_timeout)
    wait_for_room(context, count, seconds)
    flags = ["--start-timeout", str(math.ceil(min(seconds, DAEMONS_SECONDS)))]
    if nics:
        flags += ["--network-interfaces", nics if isinstance(nics, str) else ",".join(sorted(nics))]
    if verbose > 1:
        flags.append("-v")
    call = task.Call(
        fn, tuple(args), dict(kwargs or {}), job.new_token(), flags, dict(env or {}),
        min(seconds, DAEMONS_SECONDS) + job.STOP_SECONDS, task.machine,
    )  # fmt: skip
    stage = context.parallelize(range(count), count).barrier().mapPartitions(task.work(call))
    return outcome.results([pickle.loads(found) for found in collect(context, stage)])


def active(caller: str = "run") -> SparkContext:
    """Return the context of this session."""
    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError(
            f"{caller}: there is no SparkContext (hint: SparkSession.builder.getOrCreate() comes first)"
        )
    return context


def start_seconds(given: int | None) -> float:
    """Return how long Spark may take to start all tasks."""
    return float(os.environ.get(START_VARIABLE, START_SECONDS)) if given is None else float(given)


def wait_for_room(context: SparkContext, count: int, seconds: float) -> None:
    """Wait until Spark can run that many tasks at a time; TimeoutError if it cannot by then."""
    limit = time.monotonic() + seconds
    while True:
        room = context._jsc.sc().maxNumConcurrentTasks(
            context._jsc.sc().resourceProfileManager().defaultResourceProfile()
        )
        if room >= count:
            return
        if time.monotonic() > limit:
            raise TimeoutError(
                f"run: Spark has room for {room} tasks at a time, and {count} processes need as many within "
                f"{seconds:g} s (hint: a smaller num_proc, or more executors)"
            )
        time.sleep(LOOK_SECONDS)


def collect(context: SparkContext, stage: Any) -> list[Any]:
    """Run a stage once and return what its tasks yield; RuntimeError if Spark has lost one of them.

    Spark would run the stage again, from the beginning.
    """
    group = f"gorun-{job.new_token()}"
    found: list[Any] = []
    failed: list[BaseException] = []

    def spark() -> None:
        context.setJobGroup(group, "ranks of gorun", interruptOnCancel=True)
        try:
            found.extend(stage.collect())
        except BaseException as error:
            failed.append(error)

    thread = InheritableThread(target=spark, name="gorun: stage", daemon=True)
    thread.start()
    lost = False
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            if not lost and repeated(context, group):
                lost = True
                context.cancelJobGroup(group)
    except BaseException:  # Ctrl-C
        context.cancelJobGroup(group)
        raise
    if lost or failed:
        raise RuntimeError(
            f"run: Spark lost a task: {reason(failed)} (hint: the executor's log has more)"
        ) from (failed[0] if failed else None)
    return found


def reason(errors: Sequence[BaseException]) -> str:
    """Return the line of Spark's error that says why a task failed: Python's, or else its own reason."""
    text = "".join(map(str, errors))
    for pattern in (
        r"^\w*(?:Error|Exception): (?!.*(?:job failed|Job aborted)).*",
        r"Most recent failure.*?: (.*)",
    ):
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            return str(found[-1]).strip()
    return (text.strip() or "Spark gave no reason").splitlines()[0]


def repeated(context: SparkContext, group: str) -> bool:
    """Report whether Spark runs a stage of a group for a second time."""
    tracker = context.statusTracker()
    for number in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(number)
        for stage in found.stageIds if found else ():
            info = tracker.getStageInfo(stage)
            if info is not None and (info.currentAttemptId > 0 or info.numFailedTasks > 0):
                return True
    return False
