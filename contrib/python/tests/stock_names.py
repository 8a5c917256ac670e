"""Print the public names of each module of stock Horovod, which must be installed, as JSON.

    python3 stock_names.py >stock_names.json

Names only, and only what is Horovod's: not what its modules import from elsewhere.
"""

import importlib
import json
import types

MODULES = """torch torch.mpi_ops torch.compression torch.functions torch.optimizer torch.sync_batch_norm
torch.elastic torch.elastic.state torch.elastic.sampler common.util common.exceptions common.process_sets
common.elastic common.basics runner runner.launch runner.common.util.hosts runner.common.util.env
runner.common.util.secret runner.elastic.discovery runner.elastic.worker runner.util.threads""".split()


def own(value: object) -> bool:
    """Report whether a value is Horovod's."""
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith("horovod")
    return (getattr(value, "__module__", None) or "horovod").startswith("horovod")


def main() -> None:
    """Print the names, a module a line."""
    lines = []
    for module in MODULES:
        values = vars(importlib.import_module(f"horovod.{module}"))
        names = sorted(name for name, value in values.items() if name[0] != "_" and own(value))
        lines.append(f'"{module}": {json.dumps(names)}')
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
