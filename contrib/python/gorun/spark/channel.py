"""Messages between the driver and a task that runs for as long as the job does.

Spark passes nothing on to a task that runs already, so each task connects to the driver. What they send is
encrypted and signed with the token of the job, which the tasks got from Spark with what they run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import socket
import threading
from typing import Any

SALT = 16
LARGEST = 64 << 10  # bytes of a message
HELLO_SECONDS = 10.0  # for the other end to prove that it holds the token
IDLE_SECONDS, PROBE_SECONDS, PROBES = 10, 5, 3  # after which a silent machine counts as gone,
UNHEARD_SECONDS = 25  # and one that acknowledges nothing


class Refused(ConnectionError):
    """The other end does not hold the token."""


class Channel:
    """One end of a connection.

    Each message proves that its sender has heard this connection's challenges, and that none before it is
    missing.
    """

    def __init__(self, connection: socket.socket, token: str, mine: str, theirs: str) -> None:
        self._connection = connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_SECONDS * 1000)
        self._lines = connection.makefile("rb")
        self._token = token.encode()
        connection.settimeout(HELLO_SECONDS)
        challenge = os.urandom(SALT).hex().encode()
        connection.sendall(challenge + b"\n")
        heard = self._lines.readline(len(challenge) + 1).strip()
        if len(heard) != len(challenge) or heard == challenge:
            raise Refused("the other end is none of gorun's")
        self._mine, self._theirs = mine.encode() + heard, theirs.encode() + challenge
        self._sending = threading.Lock()
        self._sent = self._received = 0

    def forever(self) -> None:
        """Wait without a limit from now on."""
        self._connection.settimeout(None)

    def send(self, message: Any) -> None:
        """Send a message; OSError if the other end is gone, ValueError if it is too large."""
        data = json.dumps(message).encode()
        if len(data) > LARGEST:
            raise ValueError(f"a message has {len(data)} bytes, and may have {LARGEST}")
        with self._sending:
            self._sent += 1
            self._connection.sendall(seal(self._token, b"%s %d" % (self._mine, self._sent), data) + b"\n")

    def receive(self) -> Any:
        """Wait for a message; None if the other end has closed the connection; Refused if it is not its."""
        line = self._lines.readline(2 * LARGEST)
        if not line.endswith(b"\n"):
            return None
        self._received += 1
        data = unseal(self._token, b"%s %d" % (self._theirs, self._received), line)
        if data is None:
            raise Refused("the other end does not hold the token of this job")
        return json.loads(data)

    def close(self) -> None:
        """End the connection, and a receive() that waits."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._lines.close()


def seal(token: bytes, context: bytes, data: bytes) -> bytes:
    """Encrypt and sign data, so that it can be read with the same token and context only."""
    salt = os.urandom(SALT)
    hidden = _hide(token, salt, data)
    return base64.b64encode(_sign(token, context, salt + hidden) + salt + hidden)


def unseal(token: bytes, context: bytes, sealed: bytes) -> bytes | None:
    """Return the data, None if it was sealed with another token or context."""
    try:
        found = base64.b64decode(sealed)
    except ValueError:
        return None
    signature, rest = found[:32], found[32:]
    if not hmac.compare_digest(signature, _sign(token, context, rest)):
        return None
    return _hide(token, rest[:SALT], rest[SALT:])


def _sign(token: bytes, context: bytes, data: bytes) -> bytes:
    return hmac.digest(b"sign" + token, hashlib.sha256(context).digest() + data, "sha256")


def _hide(token: bytes, salt: bytes, data: bytes) -> bytes:
    """Add a stream of bits that only the token gives; a second time takes it away."""
    stream = hashlib.shake_256(b"hide" + token + salt).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream))
