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
END_SECONDS = 20.0  # for tasks to end that Spark is to end
REASON_SECONDS = 5.0  # for Spark to write down why a task has failed

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
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        raise RuntimeError(
            "run: Spark has no barrier stages with spark.dynamicAllocation.enabled (hint: use run_elastic)"
        )
    seconds = start_seconds(start_timeout)
    limit = time.monotonic() + seconds
    wait_for_room(context, count, seconds)
    flags = ["--start-timeout", str(math.ceil(min(seconds, DAEMONS_SECONDS)))]
    if nics:
        flags += ["--network-interfaces", nics if isinstance(nics, str) else ",".join(sorted(nics))]
    if verbose > 1:
        flags.append("-v")
    call = task.Call(
        fn, tuple(args), dict(kwargs or {}), job.new_token(), flags, texts(env),
        min(seconds, DAEMONS_SECONDS) + job.STOP_SECONDS, task.machine,
    )  # fmt: skip
    stage = context.parallelize(range(count), count).barrier().mapPartitions(task.work(call))
    found = collect(context, stage, count, limit, f"{seconds:g} s")
    return outcome.results([pickle.loads(pickled) for pickled in found])


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


def texts(env: Mapping[str, Any] | None) -> dict[str, str]:
    """Return variables of the environment, whose values a program may give as numbers."""
    return {str(name): str(value) for name, value in (env or {}).items()}


def slots(context: SparkContext) -> int:
    """Return how many tasks Spark can run at a time."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def wait_for_room(context: SparkContext, count: int, seconds: float) -> None:
    """Wait until Spark can run that many tasks at a time; TimeoutError if it cannot by then."""
    limit = time.monotonic() + seconds
    while True:
        room = slots(context)
        if room >= count:
            return
        if time.monotonic() > limit:
            raise TimeoutError(
                f"run: Spark has room for {room} tasks at a time, and {count} processes need as many within "
                f"{seconds:g} s (hint: a smaller num_proc, or more executors)"
            )
        time.sleep(LOOK_SECONDS)


def collect(context: SparkContext, stage: Any, count: int, limit: float, span: str) -> list[Any]:
    """Run a stage of so many tasks once and return what they yield; RuntimeError if Spark loses one of them.

    Spark would run the stage again, from the beginning. TimeoutError if other jobs of the application hold
    the slots until the limit of time.monotonic(), which is span after the call of run().
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
    begun = lost = late = False
    try:
        while thread.is_alive() and not lost and not late:
            thread.join(LOOK_SECONDS)
            seen = stages(context, group)
            lost = any(info.currentAttemptId > 0 or info.numFailedTasks > 0 for info in seen)
            begun = begun or any(info.numActiveTasks + info.numCompletedTasks > 0 for info in seen)
            late = not begun and thread.is_alive() and time.monotonic() > limit
    finally:  # also Ctrl-C
        if thread.is_alive():
            context.cancelJobGroup(group)
            thread.join(END_SECONDS)
    if late:
        held = sum(it.numRunningTasks() for it in context._jsc.sc().statusTracker().getExecutorInfos())
        raise TimeoutError(
            f"run: {held} of Spark's {slots(context)} slots are held by other jobs of this application, and "
            f"{count} processes need {count} within {span} (hint: a smaller num_proc, or more executors)"
        )
    if lost or failed:
        why = lost_task(context, group, count) or f"Spark lost a task: {reason(failed)}"
        raise RuntimeError(f"run: {why} (hint: the executor's log has more)") from (
            failed[0] if failed else None
        )
    return found


def stages(context: SparkContext, group: str) -> list[Any]:
    """Return what Spark knows of the stages of a group."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    found = [tracker.getStageInfo(stage) for info in jobs if info for stage in info.stageIds]
    return [info for info in found if info is not None]


def where(found: Any) -> str:
    """Return Spark's name for the host of a task. Names differ where those of task.machine() do."""
    return str(found.host())


def lost_task(context: SparkContext, group: str, count: int) -> str:
    """Return which rank Spark has lost, where and why; "" if it does not say within REASON_SECONDS."""
    store, limit = context._jsc.sc().statusStore(), time.monotonic() + REASON_SECONDS
    while time.monotonic() < limit:
        for info in stages(context, group):
            listed = store.taskList(info.stageId, 0, count)
            tasks = sorted((listed.apply(at) for at in range(listed.size())), key=lambda found: found.index())
            ranks = task.ranks([where(found) for found in tasks])
            for found, rank in zip(tasks, ranks):
                if found.status() == "FAILED" and found.errorMessage().isDefined():
                    why = reason([found.errorMessage().get()])
                    return f"rank {rank} on {where(found)}: Spark lost its task: {why}"
        time.sleep(LOOK_SECONDS)
    return ""


def reason(errors: Sequence[object]) -> str:
    """Return the line of Spark's error that says why a task failed: Python's, or else its own reason."""
    text = "".join(map(str, errors))
    for pattern in (
        r"^\w*(?:Error|Exception): (?!.*(?:job failed|Job aborted)).*",
        r"Most recent failure.*finished unsuccessfully\.\n(.*)",
        r"Most recent failure.*?: (.*)",
    ):
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            text = str(found[-1])
            break
    line = (text.strip() or "Spark gave no reason").splitlines()[0]
    return re.sub(r"^(?:\w+\.)+(\w+: )|\. Consider setting .*", "", line)
