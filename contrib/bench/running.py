"""Runs the programs that are measured, and leaves none of them behind, however the measuring ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

GRACE = 5  # seconds between SIGTERM and SIGKILL


def end_on_signals() -> None:
    """Has SIGTERM and SIGHUP end this program as an exception does, so that what it started is cleaned up."""
    for number in signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # the clean-up itself is not interrupted
    sys.exit(128 + number)


def run(command: list[str], timeout: float | None, cwd: str | os.PathLike[str]) -> tuple[int, str, str]:
    """Runs a command in a process group of its own, and returns its exit status, output and errors.

    The whole group is ended if the command takes longer than timeout seconds, which raises
    subprocess.TimeoutExpired, and if anything else interrupts the wait.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            end(process)
            raise
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
