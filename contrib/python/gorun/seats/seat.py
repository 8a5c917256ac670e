"""The program that gorun starts in the place of a rank: python -m gorun.seats.seat."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import BinaryIO

from gorun.seats import MOST_PLACES, TOKEN, address, peer_of, user_of

FIND_SECONDS = 60.0
PAUSE_SECONDS = 0.05
HELLO_SECONDS = 10.0
END_SECONDS = 2.0  # for the parent of a process to hear of its end
PIDFD_GET_INFO, PIDFD_INFO_EXIT = 0xC040FF0B, 8  # <linux/pidfd.h>: the status is the last of its 64 bytes

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


def find(environ: Mapping[str, str], seconds: float = FIND_SECONDS) -> tuple[BinaryIO, int, int | None]:
    """Hand the seat to a process of this host that waits for one.

    Return what it sends, its number, and an open file for it.
    """
    token, host, first = environ[TOKEN], environ["HOROVOD_HOSTNAME"], int(environ["GORUN_LOCAL_RANK"])
    hello = json.dumps({"environ": given(environ)}).encode() + b"\n"
    limit = time.monotonic() + seconds
    while True:
        for index in (first, *range(MOST_PLACES)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                lines = connection.makefile("rb")  # which also keeps the connection open
                pid, process = _hand_over(connection, lines, address(token, host, index), hello)
            if pid:
                return lines, pid, process
            lines.close()
        if time.monotonic() > limit:
            raise TimeoutError(f"no process on {host} took the place of this rank within {seconds:.0f} s")
        time.sleep(PAUSE_SECONDS)


def _hand_over(connection: socket.socket, lines: BinaryIO, name: str, hello: bytes) -> tuple[int, int | None]:
    """Return the number of the process that has taken the seat, 0 if none has, and an open file for it."""
    process = None
    try:
        connection.connect(name)
        if user_of(connection) != os.geteuid():
            return 0, None
        process = _opened(connection)  # now, as it may end soon
        connection.settimeout(HELLO_SECONDS)
        connection.sendall(hello)
        answer = lines.readline()
        connection.settimeout(None)
    except OSError:
        answer = b""  # nobody is there, or another seat was faster
    if not answer:
        if process is not None:
            os.close(process)
        return 0, None
    return int(json.loads(answer)["pid"]), process


def _opened(connection: socket.socket) -> int | None:
    """Open the process at the other end; None where the kernel cannot, as for one of another namespace."""
    try:
        return os.pidfd_open(peer_of(connection)[0])
    except OSError:
        return None


def ending(descriptor: int, seconds: float = END_SECONDS) -> int | None:
    """Return how a process has ended, as os.waitpid says it; None if the kernel does not tell, before 6.15.

    It is no child of this one. The kernel tells once the parent has heard.
    """
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found = bytearray(struct.pack("=Q56x", PIDFD_INFO_EXIT))
        try:
            fcntl.ioctl(descriptor, PIDFD_GET_INFO, found)
        except ProcessLookupError:  # it has just ended
            found = bytearray(64)
        except OSError:
            return None
        if struct.unpack_from("=Q", found)[0] & PIDFD_INFO_EXIT:
            return int(struct.unpack_from("=i", found, 60)[0])
        time.sleep(PAUSE_SECONDS)
    return None


def end_as(status: int) -> int:
    """End this process by the signal that has ended another one, or return its exit status, 1 for 0."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.WEXITSTATUS(status) or 1


def main() -> int:
    """Keep the place of a rank until the process that has taken it leaves or ends; return the exit status."""
    try:
        lines, pid, process = find(os.environ)
    except TimeoutError as error:
        print(error, file=sys.stderr)
        return 1
    signal.signal(STACKS, lambda number, _: os.kill(pid, number))
    try:
        line = lines.readline()
    except OSError:
        line = b""
    if not line:
        print(f"the process of this rank ended: pid {pid}", file=sys.stderr, flush=True)
        status = None if process is None else ending(process)
        return 1 if status is None else end_as(status)
    end = json.loads(line)
    if end["why"]:
        print(end["why"], file=sys.stderr)
    return int(end["exit"])


if __name__ == "__main__":
    sys.exit(main())
