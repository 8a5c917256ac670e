"""A process's place in a job, which a seat of gorun keeps for it."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

from gorun.seats import address, user_of

HELLO_SECONDS = 10.0


class NoSeat(RuntimeError):
    """No seat came in time."""


class Place:
    """Waits for a seat under a name, takes over its rank's environment, and holds it until leave().

    One seat at a time: while one is held, others find nobody here.
    """

    def __init__(self, token: str, host: str, index: int) -> None:
        self._address = address(token, host, index)
        self._host = host
        self._before: dict[str, str | None] = {}
        self._seat: socket.socket | None = None
        self.ended = threading.Event()  # set when the seat was ended by someone else
        self._listener = self._listen()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._address)
        listener.listen(1)
        return listener

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
        self._listener.close()
        self._seat = connection
        self._before = {name: os.environ.get(name) for name in environ}
        os.environ.update(environ)
        self.ended.clear()
        threading.Thread(target=self._watch, args=(connection,), name="gorun: seat", daemon=True).start()
        return int(environ["GORUN_RANK"])

    def _watch(self, seat: socket.socket) -> None:
        try:
            while seat.recv(1024):
                pass
        except OSError:
            pass
        self.ended.set()

    def leave(self, code: int = 0, why: str = "") -> None:
        """Leave the world and the job: the rank ends with this exit status. take() may follow."""
        quit_world()
        seat, self._seat = self._seat, None
        if seat is None:
            return
        try:
            seat.sendall(json.dumps({"exit": code, "why": why}).encode() + b"\n")
            seat.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended already
        self.ended.wait(HELLO_SECONDS)
        seat.close()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._listener = self._listen()

    def close(self) -> None:
        """Take no more seats."""
        self._listener.close()


def status_of(error: BaseException) -> int:
    """Return the exit status of a process that ends with this error: sys.exit() raises one too."""
    if not isinstance(error, SystemExit):
        return 1
    code = error.code
    return 0 if code is None else code & 255 if isinstance(code, int) else 1


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
