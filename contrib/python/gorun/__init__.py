"""The Python side of gorun: collectives between the ranks of one job.

    import gorun.torch as hvd      # Horovod's PyTorch API
    import gorun.numpy as hvd      # the same for plain arrays

A script that says ``import horovod.torch as hvd`` runs unchanged under ``gorun``: a drop-in of that name
comes with the job. This package needs nothing but the standard library; torch and numpy are imported only
by the module of that name. It reads no file of its own, so that it can be imported from a zip.
"""

from __future__ import annotations

from typing import Any

from gorun import bytecode

bytecode.use(__loader__, __path__[0])  # before anything else is imported

from gorun._version import __version__ as __version__  # noqa: E402


def __getattr__(name: str) -> Any:
    if name == "run":  # only here, as ranks have no use for subprocess and its like
        from gorun.launch import run

        return run
    if name == "wire_compression":
        from gorun.wire import wire_compression

        return wire_compression
    if name in ("step", "loading"):
        from gorun.counters import counters

        return getattr(counters, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
