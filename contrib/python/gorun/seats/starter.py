"""The command that gorun runs to start daemons: python -m gorun.seats.starter HOST,HOST PROGRAM...

It passes the launcher's order on to the process that runs the job. It ends when a daemon has failed, with the
reason on standard error, when all have ended, or when the launcher closes its input.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from gorun.seats import user_of

HINT = "hint: gorun and its Python package have to be on that host\n"
ADDRESS = "_GORUN_STARTER"  # the variable with the name of that process's socket


def main() -> int:
    """Run the command."""
    hosts = sys.argv[1].split(",")
    order = sys.stdin.buffer.readline()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect("\0" + os.environ[ADDRESS])
    if user_of(connection) != os.geteuid():
        print("error: another user's process is at the socket of this job", file=sys.stderr)
        return 1
    connection.sendall(json.dumps({"hosts": hosts, "order": order.decode()}).encode() + b"\n")
    threading.Thread(target=_closed, daemon=True).start()
    failed = False
    with connection.makefile(errors="replace") as lines:
        for line in lines:
            sys.stderr.write(HINT * (not failed) + line)
            failed = True
    return int(failed)


def _closed() -> None:
    """End with the launcher's input."""
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
