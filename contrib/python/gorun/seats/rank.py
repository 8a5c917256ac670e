"""The program of the ranks that gorun starts for an engine: python -m gorun.seats.rank.

It calls the function that a process of the engine keeps, and prints the outcome, sealed, as marked lines.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import traceback

from gorun import sealed
from gorun.seats import place

KEPT = "_GORUN_KEPT"  # the variable with the file that has the function
LINE = 4096  # of an outcome; longer lines may be cut on their way


def main() -> int:
    """Call the function; return the exit status."""
    with open(os.environ.pop(KEPT), "rb") as file:
        key, paths, folder, environ, pickled = pickle.load(file)
    sys.path += [path for path in paths if path not in sys.path]
    os.chdir(folder)
    os.environ.update(environ)
    from gorun.spark import outcome

    host = os.environ["HOROVOD_HOSTNAME"]
    try:
        func, args, kwargs = pickle.loads(pickled)
        result = func(*args, **kwargs)
        found = outcome.Outcome(last_rank(), host, result, size=last_size())
    except Exception as error:
        found = outcome.failed(last_rank(), host, error)
        traceback.print_exc()
    place.quit_world()
    sys.stdout.flush()
    data = outcome.dump(found)
    process = f"{host}/{os.getpid()}"
    text = base64.b64encode(sealed.seal(key, process, data)).decode()
    for start in range(0, len(text), LINE):
        last = int(start + LINE >= len(text))
        sys.stdout.write(f"{sealed.mark(key)} {process} {last} {text[start : start + LINE]}\n")
    sys.stdout.flush()
    return int(bool(pickle.loads(data).error))


def last_rank() -> int:
    """Return the rank in this process's world, which may be another than in its first."""
    from gorun import basics, exceptions

    try:
        return basics.rank()
    except exceptions.NotInitializedError:
        return int(os.environ["HOROVOD_RANK"])


def last_size() -> int:
    """Return the size of this process's world; 0 if it has none."""
    from gorun import basics, exceptions

    try:
        return basics.size()
    except exceptions.NotInitializedError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
