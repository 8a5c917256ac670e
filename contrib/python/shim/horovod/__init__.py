"""Lets a script's ``import horovod.torch as hvd`` find gorun.

In a job of gorun this drop-in wins over a Horovod that is installed. Elsewhere, and with
``--no-horovod-shim``, that one wins.
"""

import os
import sys
from glob import escape, glob
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

# The version of Horovod whose interface this is, because scripts compare it with the version they need.
# gorun's own is gorun.__version__.
__version__ = "0.28.1"


def _step_aside() -> None:
    here = __path__[0].rpartition("/")[0]
    spec = PathFinder.find_spec("horovod", [entry for entry in sys.path if entry.rstrip("/") != here])
    if spec is None or spec.loader is None:  # a plain folder of that name has no loader
        return
    if "_step_aside" in (spec.loader.get_source("horovod") or ""):  # another copy of this drop-in: a wheel's
        return
    folder = os.path.dirname(spec.origin)
    if not glob(escape(folder) + "/*/mpi_lib*"):
        _note(f"{folder} is a source tree of Horovod that was not built: using gorun's drop-in")
        return
    # Without a rendezvous, the ranks of the installed one would wait for each other in vain.
    if "GORUN_SOCKET" in os.environ and "HOROVOD_GLOO_RENDEZVOUS_ADDR" not in os.environ:
        _note(f"using gorun's drop-in instead of {folder}, which --no-horovod-shim would run")
        return
    sys.path[:] = [entry for entry in sys.path if entry.rstrip("/") != here]
    sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[__name__])


def _note(text: str) -> None:
    if os.environ.get("GORUN_RANK", "0") == "0":
        print(f"gorun: {text}", file=sys.stderr)


def __getattr__(name: str) -> object:
    if name == "run":
        from gorun.launch import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_step_aside()
