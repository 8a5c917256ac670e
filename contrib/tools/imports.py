#!/usr/bin/env python3
"""Compare what programs import and use of Horovod with what gorun has under the same names.

    contrib/tools/imports.py                  # what stock_imports.json lists
    contrib/tools/imports.py DIRECTORY...     # and the Python files of these, such as a checkout's test and examples
    contrib/tools/imports.py --record FILE DIRECTORY...   # write such a list

Prints each name that is missing, unless REASONS says why, and then ends with status 1. Modules whose framework this Python
lacks are named, and not compared. Files are read, not run.
"""

import argparse
import ast
import importlib
import itertools
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "contrib/python/tests/stock_imports.json"
LAUNCHER = "a part of horovodrun's launcher, whose place the binary takes"
ESTIMATORS = "Spark's estimators, which gorun does not have"
COMPILED = "the compiled extension, of which there is none"
REASONS = {
    r"mxnet": "MXNet is at the end of its life",
    r"tensorflow\.data": "the service of tf.data, which gorun does not have",
    r"runner\.(common\.(service|util\.(codec|config_parser|host_hash|network|safe_shell_exec|settings|timeout|tiny)))": LAUNCHER,
    r"runner\.(driver|elastic\.(constants|driver|registration|rendezvous|settings)|gloo_run|http|js_run|mpi_run)": LAUNCHER,
    r"runner\.(run|run_task|task|task_fn|util\.(cache|lsf|network|remote|streams))\b": LAUNCHER,
    r"run\b": "a package of Horovod 0.18, which 0.28.1 does not have either",
    r"spark\.(common|keras|torch|lightning|tensorflow|data_loaders)": ESTIMATORS,
    r"spark\.(driver|task|gloo_run|mpi_run|conf)": LAUNCHER,
    r"ray\.(driver_service|strategy|utils)": "a part of Horovod's own machinery",
    r"(torch|tensorflow)\.mpi_ops\.(mpi_lib|MPI_LIB)": COMPILED,
    r"torch\.(mpi_lib|mpi_lib_v2|mpi_lib_impl)": COMPILED,
    r"(_keras|data)\b": "a part of Horovod's own machinery",
}


class Names(ast.NodeVisitor):
    """The modules and names of Horovod that a file imports, and the attributes it takes from them."""

    def __init__(self, tree: ast.AST) -> None:
        self.found: set[tuple[str, str]] = set()
        self._aliases: dict[str, str] = {}
        self._stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.partition(".")[0] == "horovod":
                        self.found.add((alias.name, ""))
                        self._aliases[alias.asname or "horovod"] = alias.name if alias.asname else "horovod"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "horovod" and not node.level:
                for alias in node.names:
                    self.found.add((node.module, "" if alias.name == "*" else alias.name))
                    self._aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        self.visit(tree)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Take what stands behind a module's name, as long as that is a module."""
        first, *rest = ast.unparse(node).split(".")
        if first in self._aliases and first not in self._stored and all(part.isidentifier() for part in rest):
            self.found.add((self._aliases[first], rest[0]))
        else:
            self.generic_visit(node)


def collect(paths: list[Path]) -> dict[str, list[str]]:
    """Return the names that files use, by module."""
    found: set[tuple[str, str]] = set()
    files = [sorted(path.rglob("*.py")) if path.is_dir() else [path] for path in paths]
    for path in itertools.chain(*files):
        text = path.read_text(errors="replace")
        if "horovod" in text:
            try:
                found |= Names(ast.parse(text)).found
            except SyntaxError as error:
                print(f"{path}: left out: {error}")
    names: dict[str, set[str]] = {}
    for module, name in found:
        names.setdefault(module.partition(".")[2], set()).update({name} - {""})
    return {module: sorted(names[module]) for module in sorted(names)}


def reason(place: str) -> str:
    """Return why a module or a name is not there, or nothing."""
    return next((why for pattern, why in REASONS.items() if re.match(pattern, place)), "")


def there(module: str, name: str) -> bool:
    """Report whether a module of the drop-in has a name, or is there if the name is empty."""
    full = f"horovod.{module}".rstrip(".")
    try:
        found = importlib.import_module(full)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("horovod"):
            raise
        parent, _, last = module.rpartition(".")
        return bool(parent) and hasattr(importlib.import_module(f"horovod.{parent}"), last)  # a class
    if not name or hasattr(found, name):
        return True
    try:
        importlib.import_module(f"{full}.{name}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("horovod"):
            raise
        return False
    return True


def missing(names: dict[str, list[str]]) -> tuple[list[str], dict[str, str]]:
    """Return what gorun lacks, and the modules that could not be imported, with the error."""
    lacks, unknown = [], {}
    for module, of in names.items():
        for name in ["", *of]:
            place = ".".join(part for part in (module, name) if part)
            try:
                if not reason(place) and module not in unknown and not there(module, name):
                    lacks.append(f"horovod.{place}")
            except ImportError as error:
                unknown[module] = str(error)
    return lacks, unknown


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the names instead of comparing them")
    parser.add_argument("paths", type=Path, nargs="*", help="directories and files of programs")
    options = parser.parse_args()
    names = collect(options.paths)
    if options.record:
        lines = (f"{json.dumps(module)}: {json.dumps(of)}" for module, of in names.items())
        options.record.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    for module, of in json.loads(RECORD.read_text()).items():
        names[module] = sorted({*names.get(module, ()), *of})
    sys.path[:0] = [str(ROOT / "contrib/python"), str(ROOT / "contrib/python/shim")]
    lacks, unknown = missing(names)
    for module, error in unknown.items():
        print(f"not compared: horovod.{module}: {error}")
    compared = sum(1 + len(of) for module, of in names.items() if module not in unknown)
    print("\n".join([f"missing: {place}" for place in lacks] + [f"{compared} modules and names, {len(lacks)} missing"]))
    return 1 if lacks else 0


if __name__ == "__main__":
    sys.exit(main())
