"""The tasks of a job, as the driver sees them: Spark starts them where it has room."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Callable

from pyspark import InheritableThread, SparkContext

from gorun.spark.channel import HELLO_SECONDS, Channel

AGAIN_SECONDS = 1.0  # before a task that ended takes another room
STRANGERS = 64  # connections at a time that have not proved yet that they hold the token
PAUSE_SECONDS = 0.1  # before the next connection where the system has no room for one


class Names:
    """Names of hosts: the machine's, and a number where it has or had another host."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, machine: str, host: str) -> str:
        """Return the name of a host, which no other host gets."""
        key, taken = f"{machine} {host}", set(self._names.values())
        if key not in self._names:
            number = 1
            while (name := machine if number == 1 else f"{machine}-{number}") in taken:
                number += 1
            self._names[key] = name
        return self._names[key]


@dataclasses.dataclass(eq=False)
class _Task:
    """A task that is connected."""

    channel: Channel
    host: str
    ended: Callable[[str], None] | None = None  # set while it runs the daemon of its host


class Tasks:
    """Those that hold a slot."""

    def __init__(self, token: str, bind: str) -> None:
        self.unable = ""  # why an executor cannot run gorun
        self._token = token
        self._names = Names()
        self._tasks: list[_Task] = []
        self._changed = threading.Condition()
        self._over = self._closed = False
        self._strangers = threading.BoundedSemaphore(STRANGERS)
        family = socket.getaddrinfo(bind, 0, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((bind, 0), family=family)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="gorun: tasks", daemon=True).start()

    def _accept(self) -> None:
        while True:
            self._strangers.acquire()
            try:
                connection = self._listener.accept()[0]
                threading.Thread(
                    target=self._serve, args=(connection,), name="gorun: task", daemon=True
                ).start()
            except (OSError, RuntimeError):  # RuntimeError: no thread can be started
                self._strangers.release()
                if self._closed:
                    return
                time.sleep(PAUSE_SECONDS)

    def _greeted(self, connection: socket.socket) -> tuple[Channel, Any]:
        """Return the channel of a task, and its first message, within HELLO_SECONDS altogether."""
        late = threading.Timer(HELLO_SECONDS, _cut, [connection])
        late.daemon = True
        late.start()
        try:
            channel = Channel(connection, self._token, "driver", "task")
            return channel, channel.receive()
        finally:
            late.cancel()
            self._strangers.release()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.closing(connection), contextlib.suppress(OSError, ValueError):
            channel, hello = self._greeted(connection)
            if not hello:
                return
            channel.forever()
            if hello["unable"]:
                self.unable = f"{hello['machine']}: {hello['unable']}"
                return
            with self._joined(channel, hello) as task:
                while message := channel.receive():
                    ended, task.ended = task.ended, None
                    if ended:
                        ended(message["ended"])

    @contextlib.contextmanager
    def _joined(self, channel: Channel, hello: dict[str, str]) -> Iterator[_Task]:
        with self._changed:
            task = _Task(channel, self._names.of(hello["machine"], hello["host"]))
            if self._over:
                channel.send({"end": True})
            self._tasks.append(task)
            self._changed.notify_all()
        try:
            yield task
        finally:
            channel.close()
            if task.ended:
                task.ended("Spark lost the task that ran gorun there")
            with self._changed:
                self._tasks.remove(task)
                self._changed.notify_all()

    def slots(self) -> dict[str, int]:
        """Return how many tasks each host has."""
        with self._changed:
            return dict(Counter(task.host for task in self._tasks))

    def wait(self, wanted: Callable[[dict[str, int]], bool], seconds: float = 60.0) -> bool:
        """Wait for slots as they are wanted, at most so long; report whether they came."""
        with self._changed:
            return self._changed.wait_for(lambda: wanted(self.slots()), seconds)

    def start(self, host: str, order: bytes, ended: Callable[[str], None]) -> None:
        """Start gorun on a host: a seats.job.StartDaemon."""
        with self._changed:
            free = [task for task in self._tasks if task.host == host and task.ended is None]
            for task in free:
                task.ended = ended
                try:
                    task.channel.send({"order": json.loads(order), "host": host})
                    return
                except OSError:
                    task.ended = None  # it is about to be removed
        ended("Spark has no task there any more")

    def end(self, seconds: float) -> None:
        """Let all tasks end, and wait for that, at most so long; take no others."""
        limit = time.monotonic() + seconds
        with self._changed:
            self._over = True
            for task in self._tasks:
                with contextlib.suppress(OSError):
                    task.channel.send({"end": True})
            self._changed.wait_for(lambda: not self._tasks, max(limit - time.monotonic(), 0.0))

    def close(self) -> None:
        """Stop listening, and end the connections that are left."""
        self._closed = True
        _cut(self._listener)
        self._listener.close()
        with self._changed:
            left = list(self._tasks)
        for task in left:
            task.channel.close()


def _cut(connection: socket.socket) -> None:
    """End what waits for a connection."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Rooms:
    """Asks Spark for room for so many tasks, each a job of its own, so that none ends with another one."""

    def __init__(self, context: SparkContext, count: int, group: str, work: Callable[[Any], Any]) -> None:
        self.failure: Exception | None = None  # the last one
        self._context, self._group, self._work = context, group, work
        self._over = threading.Event()
        self._threads = [InheritableThread(target=self._hold, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _hold(self) -> None:
        self._context.setJobGroup(self._group, "ranks of gorun", interruptOnCancel=True)
        while not self._over.is_set():
            try:
                self._context.parallelize([0], 1).mapPartitions(self._work).collect()
            except Exception as error:  # Spark tried it several times
                self.failure = error
            self._over.wait(AGAIN_SECONDS)

    def stop(self) -> None:
        """Ask for no more."""
        self._over.set()

    def cancel(self, seconds: float) -> None:
        """Take back what Spark has found no room for, and wait for the end of all, at most so long."""
        self.stop()
        limit = time.monotonic() + seconds
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < limit:
            self._context.cancelJobGroup(self._group)  # one may just have begun another job
            for thread in self._threads:
                thread.join(0.2 if thread is self._threads[0] else 0.0)
