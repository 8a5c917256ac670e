"""A job whose ranks are seats: gorun, run by the process that has the engine's hosts at hand."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Callable, TextIO

import gorun
from gorun.launch import binary
from gorun.seats import TOKEN, user_of
from gorun.seats.starter import ADDRESS
from gorun.seats.step import PYTHON

SEAT = ("sh", "-c", f'exec "${PYTHON}" -m gorun.seats.seat')
# What gorun itself needs of this process's environment. Seats need no more, and pass nothing of it on.
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "XDG_CACHE_HOME", "XDG_STATE_HOME")
KEPT_PREFIXES = ("GORUN_", "HOROVOD_")
OF_ANOTHER_JOB = ("GORUN_CLUSTER", "GORUN_LAUNCHER", "GORUN_SOCKET", "GORUN_TOKEN", "GORUN_PROCESS")
STOP_SECONDS = 15.0
LOOK_SECONDS = 1.0  # between two looks whether gorun has ended
LAST_LINES = 500  # an error may have a table of hosts below it
SERVES = "gorun: starter"  # the threads that start daemons

# Starts gorun on a host by an order, in a process of the engine there. At its end it calls the function, with
# the reason or "".
StartDaemon = Callable[[str, bytes, Callable[[str], None]], None]


def new_token() -> str:
    """Return a token for the places of a job."""
    return secrets.token_hex(16)


class Job:
    """gorun, running. Its messages go to errors, or standard error, and failure() has the last of them.

    Ranks run the program, and output gets each line of their standard output. Without output it goes where
    the messages go.
    """

    def __init__(
        self,
        flags: Sequence[str],
        token: str,
        start_daemon: StartDaemon,
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = SEAT,
        output: Callable[[str], None] | None = None,
        errors: TextIO | None = None,
    ) -> None:
        self._start_daemon = start_daemon
        self._errors = errors
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        name = "gorun-starter-" + secrets.token_hex(16)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + name)
        self._listener.listen(16)
        kept = {
            key: value for key, value in {**os.environ, **(environ or {})}.items()
            if key in KEPT or key.startswith(KEPT_PREFIXES) and key not in OF_ANOTHER_JOB
        }  # fmt: skip
        kept |= {ADDRESS: name, TOKEN: token, "PYTHONPATH": os.path.dirname(gorun.__path__[0])}
        starter = f"{shlex.quote(sys.executable)} -m gorun.seats.starter {{hosts}} {{program}}"
        self._process = subprocess.Popen(
            [binary(), *flags, "--stdin", "none", "--launcher", starter, *program],
            env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace",
            stderr=subprocess.PIPE if output else subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the program that runs the job, which stops it
        )  # fmt: skip
        readers = [(self._process.stdout, output or self._message)]
        readers += [(self._process.stderr, self._message)] if output else []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads += [threading.Thread(target=_read, args=reader, daemon=True) for reader in readers]
        for thread in self._threads:
            thread.start()
        atexit.register(self.stop)

    def _message(self, line: str) -> None:
        self._said.append(line.rstrip("\n"))
        (self._errors or sys.stderr).write(line)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), name=SERVES, daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Start the daemons that a starter asks for. It ends when one fails, all have ended, or gorun has."""
        if user_of(connection) != os.geteuid():
            connection.close()
            return
        with connection, connection.makefile("rb") as lines:
            line = lines.readline()
            if not line.endswith(b"\n"):
                return  # the starter was ended
            asked = json.loads(line)
            left = set(asked["hosts"])
            news = threading.Condition()
            failed: list[str] = []

            def ended(host: str, why: str) -> None:
                with news:
                    left.discard(host)
                    failed.extend([f"{host}: {why}"] if why else [])
                    news.notify()

            for host in asked["hosts"]:
                self._start_daemon(host, asked["order"].encode(), lambda why, host=host: ended(host, why))
            with news:
                while left and not failed and not self.ended():
                    news.wait(LOOK_SECONDS)
            with contextlib.suppress(OSError):  # gorun has ended
                connection.sendall("".join(line.replace("\n", " ") + "\n" for line in failed).encode())

    def ended(self) -> bool:
        """Report whether gorun has ended."""
        return self._process.poll() is not None

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the end of gorun; return its exit status, None if it runs on after that many seconds."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, as close() does not
        self._listener.close()
        for reader in self._threads[1:]:
            reader.join(STOP_SECONDS)
        atexit.unregister(self.stop)
        return status

    def failure(self) -> str:
        """Return what gorun said about the end of the job."""
        whys: list[str] = []
        hosts: dict[str, list[str]] = {}  # that failed, by step and reason: the table below an error
        table = False
        for line in self._said:
            if line.startswith("gorun: error: "):
                whys.append(line.partition(": error: ")[2])
            elif table and line.startswith("    "):
                host, _, why = re.sub(" {2,}", ": ", line.strip()).partition(": ")
                hosts.setdefault(why, []).append(host)
            table = line.split() == ["HOST", "STEP", "REASON"] or table and line.startswith("    ")
        whys += [f"{', '.join(names)}: {why}" for why, names in hosts.items()]
        hints = [line for line in self._said if line.startswith("gorun: hint: ")]
        # Callers add the step "run".
        text = "; ".join(why.replace(": run: ", ": ", 1) for why in whys) or "gorun was ended"
        return text + "".join(f" ({line.partition('gorun: ')[2]})" for line in hints[:1])

    def stop(self) -> None:
        """End the job, and wait for that."""
        for end in (self._process.terminate, self._process.kill):
            if self.ended():
                break
            end()
            if self.wait(STOP_SECONDS) is not None:
                break
        self.wait(STOP_SECONDS)


def _read(stream: TextIO, take: Callable[[str], None]) -> None:
    with stream as lines:
        for line in lines:
            take(line)
