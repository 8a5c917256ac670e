"""Runs the programs that are measured, and leaves none of them behind, however the measuring ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Callable

GRACE = 5  # seconds between SIGTERM and SIGKILL
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process gets when its parent has ended


_starting = False  # a program that nothing would end yet
_deferred = 0  # the signal that came meanwhile


def guard(main: Callable[[], None]) -> None:
    """Runs main in a process of its own, and exits as it does.

    Whatever ends this process, SIGKILL too, ends the other one as an exception does, so that it cleans up.
    """
    parent = os.getpid()
    child = os.fork()
    if child:
        for number in SIGNALS:
            signal.signal(number, lambda number, _: os.kill(child, number))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.exit(status if status >= 0 else 128 - status)
    end_on_signals()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        sys.exit(128 + signal.SIGTERM)
    main()


def end_on_signals() -> None:
    """Makes signals end this program as an exception does, so that its jobs are cleaned up."""
    for number in SIGNALS:
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    global _deferred
    for each in SIGNALS:  # the clean-up itself is not interrupted
        signal.signal(each, signal.SIG_IGN)
    if _starting:
        _deferred = number
    else:
        sys.exit(128 + number)


@contextlib.contextmanager
def started(command: list[str], cwd: str | os.PathLike[str]) -> Iterator[subprocess.Popen[str]]:
    """Starts a command in a process group of its own, which is ended if anything interrupts the block."""
    global _starting
    _starting = True
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
            start_new_session=True,
        )  # fmt: skip
    except BaseException:
        _starting = False
        raise
    with process:
        try:
            _starting = False
            if _deferred:
                sys.exit(128 + _deferred)
            yield process
        except BaseException:
            end(process)
            raise


def run(command: list[str], timeout: float | None, cwd: str | os.PathLike[str]) -> tuple[int, str, str]:
    """Runs a command, and returns its exit status, output and errors.

    It is ended if it takes longer than timeout seconds, which raises subprocess.TimeoutExpired.
    """
    with started(command, cwd) as process:
        out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process and its group: by SIGTERM, and by SIGKILL after GRACE seconds."""
    for number in signal.SIGTERM, signal.SIGKILL:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.communicate(timeout=GRACE)
            return
        except subprocess.TimeoutExpired:
            continue
