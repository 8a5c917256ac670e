"""A process's place in a job, which a seat of gorun keeps for it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time

from gorun.seats import address, user_of

HELLO_SECONDS = 10.0


class NoSeat(RuntimeError):
    """No seat came in time."""


class Place:
    """Waits for a seat under a name, takes over its rank's environment, and holds it until leave()."""

    def __init__(self, token: str, host: str, index: int) -> None:
        self._host = host
        self._seat: socket.socket | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address(token, host, index))
        self._listener.listen(1)

    def take(self, seconds: float | None = None) -> int:
        """Wait for a seat, and return its rank. The environment is the rank's from now on."""
        limit = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if limit is None else max(limit - time.monotonic(), 0.0)
            self._listener.settimeout(left)
            try:
                connection = self._listener.accept()[0]
            except (socket.timeout, BlockingIOError):
                raise NoSeat(
                    f"gorun started no rank on {self._host} for this process in {seconds} s"
                ) from None
            environ = _hello(connection)
            if environ is not None:
                break
            connection.close()
        self._listener.close()  # other seats find nobody here
        self._seat = connection
        os.environ.update(environ)
        return int(environ["GORUN_RANK"])

    def leave(self, code: int = 0, why: str = "") -> None:
        """Leave the world and the job: the rank ends with this exit status."""
        quit_world()
        self._listener.close()
        if self._seat is None:
            return
        with self._seat as seat, contextlib.suppress(OSError):  # it may have ended already
            seat.settimeout(HELLO_SECONDS)
            seat.sendall(json.dumps({"exit": code, "why": why}).encode() + b"\n")
            seat.shutdown(socket.SHUT_WR)
            seat.recv(1)  # it sends nothing, and ends
        self._seat = None


def status_of(error: BaseException) -> int:
    """Return the exit status of a process that ends with this error: sys.exit() raises one too."""
    if not isinstance(error, SystemExit):
        return 1
    code = error.code
    return 0 if code is None else code & 255 if isinstance(code, int) else 1


def last_rank() -> int:
    """Return the rank in this process's world, which may be another than in its first."""
    basics = sys.modules.get("gorun.basics")
    if basics is not None and basics.is_initialized():
        return int(basics.rank())
    return int(os.environ["HOROVOD_RANK"])


def quit_world() -> None:
    """Leave the world, if this process is in one: what others wait for it ends, with an error there."""
    basics = sys.modules.get("gorun.basics")
    if basics is not None:
        basics.shutdown()


def _hello(seat: socket.socket) -> dict[str, str] | None:
    """Return what a seat hands over, and tell it who takes it; None if it is not one of this user's."""
    if user_of(seat) != os.geteuid():
        return None
    seat.settimeout(HELLO_SECONDS)
    try:
        with seat.makefile("rb") as lines:
            hello = json.loads(lines.readline())
        seat.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    except (OSError, ValueError):
        return None
    seat.settimeout(None)
    return dict(hello["environ"])
