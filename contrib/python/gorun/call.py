"""The program of the ranks of run(): python -m gorun.call."""

from __future__ import annotations

import base64
import os
import pickle
import sys
import textwrap
from multiprocessing import spawn

from gorun import sealed

LINE = 4096  # of a result; longer lines may be cut on their way


def main() -> None:
    """Call the function in the environment, and print its result, sealed with the key given there."""
    count = int(os.environ.pop("_GORUN_CALL"))
    key = os.environ.pop("_GORUN_CALL_KEY")
    call = base64.b85decode("".join(os.environ.pop(f"_GORUN_CALL_{i}") for i in range(count)))
    main = pickle.loads(base64.b85decode(os.environ.pop("_GORUN_CALL_MAIN")))
    sys.path += [entry for entry in main.pop("sys_path") if entry not in sys.path]
    spawn.prepare(main)
    func, args, kwargs = pickle.loads(call)
    result = pickle.dumps(func(*args, **kwargs))
    rank = os.environ.get("HOROVOD_RANK", "0")
    sys.stdout.flush()
    for line in textwrap.wrap(base64.b85encode(sealed.seal(key, f"rank {rank}", result)).decode(), LINE):
        sys.stdout.write(f"{sealed.mark(key)} {rank} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
