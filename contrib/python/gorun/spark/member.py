"""A task of Spark: it holds a slot of its executor, and starts gorun there when the driver asks."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

from gorun.seats import rank, step
from gorun.spark.channel import HELLO_SECONDS, Channel

END_SECONDS = 15.0  # for the daemon to end after its job


@dataclasses.dataclass
class Membership:
    """What all tasks get."""

    driver: tuple[str, int]
    token: str = dataclasses.field(repr=False)
    key: str = dataclasses.field(repr=False)
    function: bytes  # and its arguments, pickled
    environ: Mapping[str, str]
    host: Callable[[], Sequence[str]]  # the machine's name, and what tells the host from all others there


def machine() -> list[str]:
    """Return the machine's name and network namespace: a container may have the name of its host."""
    return [socket.gethostname(), f"{os.stat('/proc/self/ns/net').st_ino}"]


def executor() -> list[str]:
    """Return what machine() does, and what tells this executor from all others there, also later."""
    name, network = machine()
    parent = os.getppid()  # the same for all tasks of an executor
    with open(f"/proc/{parent}/stat", encoding="utf-8", errors="replace") as file:
        begun = file.read().rpartition(")")[2].split()[19]
    return [name, f"{network} {parent} {begun}"]


def work(membership: Membership) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function of a partition."""

    def hold(_: Iterator[Any]) -> Iterator[Any]:
        _hold(membership)
        return iter(())

    return hold


def _hold(membership: Membership) -> None:
    """Hold a slot until the driver says that the job has ended; ConnectionError if the driver is gone."""
    name, own = membership.host()
    # It may take long, and the driver waits only a little for the first message.
    hello = {"machine": name, "host": own, "unable": step.unable()}
    daemon: threading.Thread | None = None
    with _kept(membership), socket.create_connection(membership.driver, HELLO_SECONDS) as connection:
        channel = Channel(connection, membership.token, "task", "driver")
        with contextlib.closing(channel):
            channel.send(hello)
            channel.forever()
            while message := channel.receive():
                if "order" in message:
                    order = json.dumps(message["order"]).encode()
                    arguments = (channel, order, message["host"])
                    daemon = threading.Thread(target=_run, args=arguments, daemon=True)
                    daemon.start()
                elif "end" in message:
                    if daemon:
                        daemon.join(END_SECONDS)
                    return
            raise ConnectionError("the driver has gone")


@contextlib.contextmanager
def _kept(membership: Membership) -> Iterator[None]:
    """Keep the function where ranks of this executor find it: in memory that ends with this process."""
    file = os.memfd_create("gorun-function")
    environ = dict(membership.environ)
    if "CUDA_VISIBLE_DEVICES" in os.environ:  # which daemons do not get
        environ.setdefault("CUDA_VISIBLE_DEVICES", os.environ["CUDA_VISIBLE_DEVICES"])
    kept = (membership.key, sys.path, os.getcwd(), environ, membership.function)
    with open(file, "wb", closefd=False) as memory:
        pickle.dump(kept, memory)
    os.environ[rank.KEPT] = f"/proc/{os.getpid()}/fd/{file}"
    try:
        yield
    finally:
        os.environ.pop(rank.KEPT, None)
        os.close(file)


def _run(channel: Channel, order: bytes, host: str) -> None:
    why = step.run(order, host)
    try:
        channel.send({"ended": why})
    except OSError:
        pass  # the job has ended
