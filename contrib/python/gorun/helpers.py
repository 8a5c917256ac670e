"""The helpers of horovod.runner that programs and their tests import. Launches do not use them."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import threading
from typing import Any, Callable

__all__ = [
    "DIGEST_LENGTH", "HOROVOD_SECRET_KEY", "IGNORE_REGEXES", "KUBEFLOW_MPI_EXEC", "LOG_LEVEL_STR",
    "SECRET_LENGTH", "check_digest", "compute_digest", "get_env_rank_and_size", "in_thread", "is_exportable",
    "is_kubeflow_mpi", "make_secret_key",
]  # fmt: skip

# Threads.


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Start a thread that calls target(*args), and return it. silent: hide the exceptions of target."""
    if not isinstance(args, tuple):
        raise ValueError(f"args is a tuple, (x,) for one argument, and not {type(args)}")

    def run() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


# Messages that are signed.

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
SECRET_LENGTH = 32  # bytes
DIGEST_LENGTH = 32


def make_secret_key() -> bytes:
    """Return a new random key."""
    return secrets.token_bytes(SECRET_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA256 of a message."""
    return hmac.digest(key, message, "sha256")


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Report whether a digest belongs to the message, in a time that does not depend on either."""
    return hmac.compare_digest(compute_digest(key, message), digest)


# The environment.

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", HOROVOD_SECRET_KEY}
KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"


def is_exportable(v: str) -> bool:
    """Report whether horovodrun passes a variable on to the ranks."""
    return not any(re.match(pattern, v) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks from the environment, or 0 and 1."""
    for prefix in "HOROVOD", "OMPI_COMM_WORLD", "PMI":
        names = [f"{prefix}_RANK", f"{prefix}_SIZE"]
        there = [name for name in names if name in os.environ]
        if there == names:
            return int(os.environ[names[0]]), int(os.environ[names[1]])
        if there:
            raise RuntimeError(f"find rank and size: of {' and '.join(names)} only {there[0]} is set")
    return 0, 1


def is_kubeflow_mpi() -> bool:
    """Report whether Kubeflow's MPI operator started this."""
    return os.environ.get("OMPI_MCA_plm_rsh_agent") == KUBEFLOW_MPI_EXEC
