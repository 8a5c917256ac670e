"""The program that gorun starts in the place of a rank: python -m gorun.seats.seat."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import BinaryIO

from gorun.seats import MOST_PLACES, TOKEN, address, user_of

FIND_SECONDS = 60.0
PAUSE_SECONDS = 0.05
HELLO_SECONDS = 10.0

# What the daemon sets for a rank. All else belongs to this process. docs/reference/environment.md has each.
PREFIXES = (
    "GORUN_", "HOROVOD_", "TORCHELASTIC_", "JAX_", "OMPI_", "MPITRAMPOLINE_", "TORCH_NCCL_", "NCCL_", "GLOO_"
)  # fmt: skip
NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "NODE_RANK", "MASTER_ADDR",
    "MASTER_PORT", "TF_CONFIG", "ACCELERATE_USE_CPU",
)  # fmt: skip
STACKS = signal.SIGRTMIN + 13  # asks a rank for the stacks of its threads: see gorun.counters


def given(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the daemon has set for the rank."""
    return {name: value for name, value in environ.items() if name in NAMES or name.startswith(PREFIXES)}


def find(environ: Mapping[str, str], seconds: float = FIND_SECONDS) -> tuple[BinaryIO, int]:
    """Hand the seat to a process of this host that waits for one; return what it sends, and its number."""
    token, host, first = environ[TOKEN], environ["HOROVOD_HOSTNAME"], int(environ["GORUN_LOCAL_RANK"])
    hello = json.dumps({"environ": given(environ)}).encode() + b"\n"
    limit = time.monotonic() + seconds
    while True:
        for index in (first, *range(MOST_PLACES)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                lines = connection.makefile("rb")  # which also keeps the connection open
                pid = _hand_over(connection, lines, address(token, host, index), hello)
            if pid:
                return lines, pid
            lines.close()
        if time.monotonic() > limit:
            raise TimeoutError(f"no process on {host} took the place of this rank within {seconds:.0f} s")
        time.sleep(PAUSE_SECONDS)


def _hand_over(connection: socket.socket, lines: BinaryIO, name: str, hello: bytes) -> int:
    """Return the number of the process that has taken the seat, 0 if none has."""
    try:
        connection.connect(name)
        if user_of(connection) != os.geteuid():
            return 0
        connection.settimeout(HELLO_SECONDS)
        connection.sendall(hello)
        answer = lines.readline()
        connection.settimeout(None)
    except OSError:
        return 0  # nobody is there, or another seat was faster
    return int(json.loads(answer)["pid"]) if answer else 0


def main() -> int:
    """Keep the place of a rank until the process that has taken it leaves or ends; return the exit status."""
    try:
        lines, pid = find(os.environ)
    except TimeoutError as error:
        print(error, file=sys.stderr)
        return 1
    signal.signal(STACKS, lambda number, _: os.kill(pid, number))
    try:
        line = lines.readline()
    except OSError:
        line = b""
    if not line:
        print(f"the process of this rank ended: pid {pid}", file=sys.stderr)
        return 1
    end = json.loads(line)
    if end["why"]:
        print(end["why"], file=sys.stderr)
    return int(end["exit"])


if __name__ == "__main__":
    sys.exit(main())
