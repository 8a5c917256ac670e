"""The daemon of a host, started by a process of the engine there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque

from gorun.launch import binary

PYTHON = "_GORUN_PYTHON"  # the interpreter for seats of this host
LAST_LINES = 5
VERSION_SECONDS = 30.0  # for a host's first look at a binary on a slow file system


def unable() -> str:
    """Return why gorun cannot run on this host, "" if it can."""
    try:
        found = subprocess.run(
            [binary(), "version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=VERSION_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"start gorun: {error}"
    if found.returncode == 0:
        return ""
    return (found.stderr.strip() or f"gorun version: exit status {found.returncode}").splitlines()[-1]


def run(order: bytes, host: str) -> str:
    """Start gorun on this host by the launcher's order, under the launcher's name for it; wait for its end.

    The result says why it failed, "" if it did not. The order is secret.
    """
    environ = {**os.environ, PYTHON: sys.executable}
    environ.pop("CUDA_VISIBLE_DEVICES", None)  # this process has no GPU, which says nothing about the host
    try:
        process = subprocess.Popen(
            [binary(), "worker", "--step"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        return f"start gorun: {error}"
    said: deque[str] = deque(maxlen=LAST_LINES)
    assert process.stdin is not None and process.stderr is not None
    reader = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
    reader.start()
    try:
        process.stdin.write(json.dumps({**json.loads(order), "host": host}) + "\n")
        process.stdin.flush()
    except OSError:
        pass  # what it has written says why
    status = process.wait()
    reader.join(1.0)  # a rank that escaped may hold the pipe
    process.stdin.close()
    if not reader.is_alive():
        process.stderr.close()
    if status == 0:
        return ""
    lines = [line.strip() for line in said if line.strip()]
    return lines[-1] if lines else f"gorun worker: exit status {status}"
