#!/usr/bin/env python3
"""Write docs/reference/tensorflow-names.md: every public name of Horovod for TensorFlow and Keras, and its test.

    contrib/tools/names.py           # writes it anew: make reference
    contrib/tools/names.py --check   # fails if it is older than the code

Either fails if a name has no test. Nothing that needs TensorFlow is imported: signatures and uses are read from
the source, and the numbers of ranks from the jobs of contrib/python/tests/tf/run.py.
"""

import argparse
import ast
import importlib.util
import json
import sys
from pathlib import Path

import api

TESTS = api.PYTHON / "tests/tf"
EXAMPLES = api.ROOT / "contrib/examples"
PAGE = api.ROOT / "docs/reference/tensorflow-names.md"

# Modules whose names scripts use, and gorun's of the same names.
MODULES = {
    f"horovod.{name}": f"gorun.{name}"
    for name in (
        "tensorflow", "tensorflow.elastic", "tensorflow.keras", "tensorflow.keras.callbacks",
        "tensorflow.keras.elastic", "keras", "keras.callbacks", "keras.elastic",
    )
}  # fmt: skip
BEGIN = """# Names for TensorFlow and Keras

Every public name of Horovod 0.28.1 for TensorFlow and Keras: its signature in gorun, the programs that test it, with how
many ranks, and whether eagerly and in graphs. The programs are in `contrib/python/tests/tf` and `contrib/examples`, and
`make tensorflow` runs them with TensorFlow 2.21 and 2.18 and Keras 3, with `tf_keras`, and with TensorFlow 2.15 and Keras 2.
Names that only Horovod's own modules need are left out, and `test_surface.py` lists them.
"""


def module_of(path: Path) -> dict:
    """Return the constants of a test program that is not imported: its assignments."""
    tree = ast.parse(path.read_text())
    return {n.targets[0].id: n.value for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}


def left_out() -> dict[str, set[str]]:
    """Return the names that test_surface.py explains to be missing, by module."""
    constants = module_of(TESTS / "test_surface.py")
    known = {name: ast.literal_eval(constants[name]) for name in ("INTERNAL", "IMPORTED")}
    exceptions = eval(
        compile(ast.Expression(constants["EXCEPTIONS"]), "EXCEPTIONS", "eval"), {"dict": dict, **known}
    )
    return {f"horovod.{module}": set(names) for module, names in exceptions.items()}


def ranks() -> dict[Path, set[int]]:
    """Return how many ranks each program is run with."""
    spec = importlib.util.spec_from_file_location("run", TESTS / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    run.installed = lambda python, name: True
    found: dict[Path, set[int]] = {}
    for _, flags, program, *_ in run.jobs("python"):
        count = flags[flags.index("-np") + 1] if "-np" in flags else flags[flags.index("-H") + 1].partition(":")[2]
        found.setdefault(TESTS / program[0], set()).add(int(count))
    return found


class Uses(ast.NodeVisitor):
    """The names of Horovod that a program uses, and which of them eagerly and in graphs too."""

    def __init__(self, path: Path) -> None:
        self.aliases: dict[str, set[str]] = {}
        self.names: dict[tuple[str, str], bool] = {}
        self._both = 0
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in MODULES and alias.asname:
                        self.aliases.setdefault(alias.asname, set()).add(alias.name)
        self.visit(tree)

    def visit_Call(self, node: ast.Call) -> None:
        """A call of both(), whose arguments run in both ways."""
        inside = isinstance(node.func, ast.Name) and node.func.id == "both"
        self._both += inside
        self.generic_visit(node)
        self._both -= inside

    def visit_For(self, node: ast.For) -> None:
        """A loop over modules, or over compiled, whose body runs in both ways."""
        target, over = ast.unparse(node.target), getattr(node.iter, "elts", [])
        if over and all(isinstance(n, ast.Name) and n.id in self.aliases for n in over):
            self.aliases[target] = set().union(*(self.aliases[n.id] for n in over))
        both = [node, *(n for n in node.body if isinstance(n, ast.For))]
        inside = any(ast.unparse(n.target) == "compiled" for n in both)
        self._both += inside
        self.generic_visit(node)
        self._both -= inside

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Take hvd.name and hvd.module.name."""
        parts = ast.unparse(node).split(".")
        for module in self.aliases.get(parts[0], ()):
            for i in range(1, min(len(parts), 3)):
                place = (".".join([module, *parts[1:i]]), parts[i])
                self.names[place] = self.names.get(place, False) or self._both > 0
        self.generic_visit(node)


def signature(module: str, name: str) -> str:
    """Return a function or class as it is called, a constant by its name."""
    node = api.Module(MODULES[module]).definition(name)
    if isinstance(node, ast.ClassDef):
        node = api.method(api.Module(MODULES[module]), name, "__init__")
    if node is None:
        return name
    for arg in ast.walk(node.args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    return api.signature(node, name).partition(" -> ")[0]


def counts(numbers: set[int]) -> str:
    """Return numbers of ranks, ranges as such."""
    got = sorted(numbers)
    return f"{got[0]}-{got[-1]}" if len(got) > 2 and got[-1] - got[0] == len(got) - 1 else ", ".join(map(str, got))


def page() -> tuple[str, list[str]]:
    """Return the page, and the names without a test."""
    stock = json.loads((TESTS / "stock_tensorflow.json").read_text())
    programs = {path: Uses(path) for path in sorted(ranks())}
    numbers, exceptions, untested, out = ranks(), left_out(), [], BEGIN
    for module in MODULES:
        out += f"\n## {module}\n\n| name | tested by | ranks | |\n|---|---|---|---|\n"
        for name in sorted(stock[module.partition(".")[2]]):
            if "." in name or name.startswith("_") or name in exceptions.get(module, ()):
                continue
            users = [path for path, uses in programs.items() if (module, name) in uses.names]
            if not users:
                untested.append(f"{module}.{name}")
            run_by = set().union(*(numbers[path] for path in users)) if users else set()
            both = any(programs[path].names[module, name] for path in users)
            text = signature(module, name).replace("|", "\\|")
            tests = ", ".join(f"`{path.name}`" for path in users)
            out += f"| `{text}` | {tests} | {counts(run_by) if run_by else ''} | {'eager, graph' if both else ''} |\n"
    return out + api.WRITTEN, untested


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    text, untested = page()
    if untested:
        sys.exit("in no test of contrib/python/tests/tf: " + ", ".join(untested))
    if check and (not PAGE.exists() or PAGE.read_text() != text):
        sys.exit(f"older than the code: {PAGE.relative_to(api.ROOT)}; make reference writes it anew")
    if not check:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
