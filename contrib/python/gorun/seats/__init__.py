"""Jobs on the hosts of another engine, as Ray and Spark; ranks in processes that gorun did not start.

An engine such as Ray starts its processes itself, and functions run there. So gorun starts a small process
in the place of each rank, a *seat*. It hands what the daemon has set for the rank to a process of the engine
on the same host, and keeps that process's place in the job from then on. The session with the daemon is the
process's own. The seat ends when the process leaves or ends.

    place    in the engine's process: takes a seat
    seat     the program of the ranks
    step     starts a host's daemon, in a process of the engine there
    job      where the job is launched: runs gorun, and asks the engine to start daemons
    starter  the command by which gorun reaches job

Ranks in Spark are processes of gorun's own, without seats: rank is their program.

The key of a job travels as the engine's own messages do. With seats, functions and results do too.
"""

from __future__ import annotations

import hashlib
import socket
import struct

MOST_PLACES = 256  # of a host
TOKEN = "_GORUN_SEATS"  # the variable that tells seats which processes are theirs


def address(token: str, host: str, index: int) -> str:
    """Return the abstract socket of a place on a host. A token makes it another one for each job."""
    return "\0gorun-seat-" + hashlib.sha256(f"{token}/{host}/{index}".encode()).hexdigest()[:40]


def user_of(connection: socket.socket) -> int:
    """Return the number of the user at the other end: abstract sockets are open to all of a host."""
    size = struct.calcsize("3i")  # of the process, its user and its group
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1])
