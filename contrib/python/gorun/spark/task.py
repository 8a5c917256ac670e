"""A task of a barrier stage, as a rank of a job that its first task launches."""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

from pyspark import BarrierTaskContext

from gorun.seats import job, step
from gorun.seats.place import NoSeat, Place, status_of
from gorun.spark import outcome
from gorun.spark.outcome import Outcome

END_SECONDS = 15.0  # for daemons to end after their job
ENDED_SECONDS = 1.0  # for this process to hear that the job has ended, if that is why the function failed


@dataclasses.dataclass
class Call:
    """What all tasks get."""

    func: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    token: str
    flags: Sequence[str]
    environ: Mapping[str, str]
    start_seconds: float
    machine: Callable[[], str]  # what tells hosts apart: tasks on the same share memory and abstract sockets


@dataclasses.dataclass
class Seating:
    """Where this task's rank is, and which others are on its host."""

    host: str
    index: int  # on the host
    leads: bool  # this task starts the daemon of its host
    hosts: str  # of the job, as gorun's -H


def machine() -> str:
    """Return the name of this host, and its network namespace: a container may have the name of its host."""
    return f"{socket.gethostname()} {os.stat('/proc/self/ns/net').st_ino}"


def seat(machines: Sequence[str], partition: int) -> Seating:
    """Return the seat of a partition, from the machines of all partitions."""
    names: dict[str, str] = {}
    for name in machines:
        if name not in names:
            plain = name.partition(" ")[0]
            names[name] = f"{plain}-{len(names)}" if plain in names.values() else plain
    own = machines[partition]
    return Seating(
        host=names[own],
        index=machines[:partition].count(own),
        leads=own not in machines[:partition],
        hosts=",".join(f"{host}:{machines.count(name)}" for name, host in names.items()),
    )


def ranks(machines: Sequence[str]) -> list[int]:
    """Return the rank of each partition, from the machines of all: they are numbered machine by machine."""
    order = sorted(range(len(machines)), key=lambda partition: machines.index(machines[partition]))
    return [order.index(partition) for partition in range(len(machines))]


class _Daemon:
    """The daemon of this task's host, in a thread."""

    def __init__(self, order: bytes, host: str) -> None:
        self.why = ""
        self._thread = threading.Thread(target=self._run, args=(order, host), daemon=True)
        self._thread.start()

    def _run(self, order: bytes, host: str) -> None:
        self.why = step.run(order, host)

    def join(self) -> None:
        """Wait for its end, which follows that of the job."""
        self._thread.join(END_SECONDS)


class _Launched:
    """gorun, which the first task runs, and the order that it gives to daemons."""

    def __init__(self, call: Call, hosts: str, size: int) -> None:
        self._order = b""
        self._news = threading.Condition()
        flags = ["-np", str(size), "-H", hosts, *call.flags]
        self.job = job.Job(flags, call.token, self._start, call.environ)

    def _start(self, host: str, order: bytes, ended: Callable[[str], None]) -> None:
        with self._news:
            self._order = order
            self._news.notify()

    def order(self, seconds: float) -> bytes:
        """Return the order, which is the same for all hosts; b"" if gorun ended before it gave one."""
        for _ in range(int(seconds * 10)):
            with self._news:
                if self._order or self._news.wait(0.1):
                    return self._order
            if self.job.ended():
                break
        return b""


def work(call: Call) -> Callable[[Iterator[Any]], Iterator[bytes]]:
    """Return the function of a partition."""
    return lambda _: iter([outcome.dump(_rank(call, BarrierTaskContext.get()))])


def _rank(call: Call, context: Any) -> Outcome:
    """Become a rank, call the function, leave."""
    partition = context.partitionId()
    machines = list(context.allGather(call.machine()))
    own = seat(machines, partition)
    place = Place(call.token, own.host, own.index)
    why = step.unable() if own.leads else ""
    missing = [said for said in context.allGather(why and f"{own.host}: {why}") if said]
    if missing:  # daemons would be waited for
        place.close()
        return Outcome(-1, own.host, daemon=missing[0])
    launched = _Launched(call, own.hosts, len(machines)) if partition == 0 else None
    order = launched.order(call.start_seconds) if launched else b""
    order = context.allGather(order.decode())[0].encode()
    daemon = _Daemon(order, own.host) if own.leads and order else None
    try:
        found = _called(call, place, own.host, call.start_seconds if order else 0.0)
    finally:
        place.close()
    if launched:
        status = launched.job.wait(END_SECONDS if found.rank < 0 else None)
        if status is None:
            launched.job.stop()
        if status != 0:
            found.job = launched.job.failure()
    if daemon:
        daemon.join()
        if daemon.why and found.rank < 0:
            found.daemon = f"{own.host}: {daemon.why}"
        elif daemon.why and not found.job:
            found.job = f"{own.host}: {daemon.why}"
    return found


def _called(call: Call, place: Place, host: str, seconds: float) -> Outcome:
    try:
        rank = place.take(seconds)
    except NoSeat as error:
        return Outcome(-1, host, error=str(error))
    before = dict(os.environ)
    os.environ.update(call.environ)
    try:
        found = Outcome(rank, host, call.func(*call.args, **call.kwargs))
        place.leave()
    except (Exception, SystemExit) as error:
        found = outcome.failed(rank, host, error, place.ended.wait(ENDED_SECONDS))
        place.leave(status_of(error), found.error)
    finally:
        for name in call.environ:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
    return found
