"""The program of ranks in Spark: python -m gorun.seats.rank.

It calls the function that a task keeps, and prints the outcome.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback

from gorun import sealed
from gorun.seats import place

KEPT = "_GORUN_KEPT"  # the variable with the file that has the function


def main() -> int:
    """Call the function; return the exit status."""
    with open(os.environ.pop(KEPT), "rb") as file:
        key, paths, folder, environ, pickled = pickle.load(file)
    sys.path += [path for path in paths if path not in sys.path]
    os.chdir(folder)
    os.environ.update(environ)
    from gorun import basics
    from gorun.spark import outcome  # PySpark may be in one of the paths

    host = os.environ["HOROVOD_HOSTNAME"]
    try:
        func, args, kwargs = pickle.loads(pickled)
        result = func(*args, **kwargs)
        size = basics.size() if basics.is_initialized() else 0
        found = outcome.Outcome(place.last_rank(), host, result, size=size)
    except Exception as error:
        found = outcome.failed(place.last_rank(), host, error)
        traceback.print_exc()
    place.quit_world()
    sys.stdout.flush()
    data = outcome.dump(found)
    sys.stdout.writelines(sealed.lines(key, f"{host}/{os.getpid()}", data))
    sys.stdout.flush()
    return int(bool(pickle.loads(data).error))


if __name__ == "__main__":
    sys.exit(main())
