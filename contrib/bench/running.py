"""Runs the programs that are measured, and leaves none of them behind, however the measuring ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType

GRACE = 5  # seconds between SIGTERM and SIGKILL


_starting = False  # a program that nothing would end yet
_deferred = 0  # the signal that came meanwhile


def end_on_signals() -> None:
    """Makes SIGTERM and SIGHUP end this program as an exception does, so that its jobs are cleaned up."""
    for number in signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    global _deferred
    signal.signal(number, signal.SIG_IGN)  # the clean-up itself is not interrupted
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
