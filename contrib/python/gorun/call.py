"""The program of the ranks of run(): python -m gorun.call."""

from __future__ import annotations

import base64
import os
import pickle
import sys
from multiprocessing import spawn
from typing import Any

from gorun import sealed


def main() -> None:
    """Call the function in the environment, and print its result, sealed with the key given there."""
    count = int(os.environ.pop("_GORUN_CALL"))
    key = os.environ.pop("_GORUN_CALL_KEY")
    call = base64.b85decode("".join(os.environ.pop(f"_GORUN_CALL_{i}") for i in range(count)))
    main = pickle.loads(base64.b85decode(os.environ["_GORUN_CALL_MAIN"]))
    sys.path += [entry for entry in main.pop("sys_path") if entry not in sys.path]
    by_value = main.pop("python", None)
    if by_value not in (None, sys.version_info[:2]):
        theirs, mine = (".".join(map(str, version)) for version in (by_value, sys.version_info[:2]))
        sys.exit(f"gorun: run: a function that comes by value needs the caller's Python {theirs}, not {mine}")
    spawn.prepare(main)
    del os.environ["_GORUN_CALL_MAIN"]  # until now it forbids run()
    func, args, kwargs = _loads(call)
    result = func(*args, **kwargs)
    data = sys.modules.get("cloudpickle", pickle).dumps(result) if by_value else pickle.dumps(result)
    rank = os.environ.get("HOROVOD_RANK", "0")
    sys.stdout.flush()
    sys.stdout.writelines(sealed.lines(key, f"rank/{rank}", data))
    sys.stdout.flush()


def _loads(call: bytes) -> Any:
    try:
        return pickle.loads(call)
    except AttributeError as error:
        if not str(error).startswith("Can't get attribute"):
            raise
        sys.exit(
            f"gorun: run: {error}: ranks import the script: define functions and classes above "
            'if __name__ == "__main__":, or install cloudpickle where run() is called'
        )
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cloudpickle":
            raise
        sys.exit(f"gorun: run: {error}: the function comes by value: pip install cloudpickle on each host")


if __name__ == "__main__":
    main()
