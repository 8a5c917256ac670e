"""Print what stock Horovod's modules define, with parameters and defaults, as JSON; its source is enough.

    pip download --no-deps --no-binary :all: horovod==0.28.1
    tar xf horovod-0.28.1.tar.gz
    python3 stock_signatures.py horovod-0.28.1 >stock_signatures.json
    python3 stock_signatures.py horovod-0.28.1 tensorflow keras ... >tf/stock_tensorflow.json

With modules, also the names that these import from others of Horovod, as "".

Functions and methods as "a, b=1, *args", classes as "class of" and the names of their bases, everything
else, attributes that __init__ sets among it, as "".
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stock_names import MODULES

# Of these there are only objects, made by a function that has a public name.
MADE = ("_DistributedOptimizer", "_DistributedAdasumOptimizer")


def parameters(function: ast.FunctionDef) -> str:
    """Return the parameters of a function as they are written in its definition, without types."""
    given = function.args
    names = [arg.arg for arg in given.posonlyargs + given.args]
    defaults = [f"={ast.unparse(default)}" for default in given.defaults]
    texts = [name + default for name, default in zip(names, [""] * (len(names) - len(defaults)) + defaults)]
    if given.vararg:
        texts.append(f"*{given.vararg.arg}")
    for arg, default in zip(given.kwonlyargs, given.kw_defaults):
        texts.append(arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}")
    if given.kwarg:
        texts.append(f"**{given.kwarg.arg}")
    return ", ".join(texts)


def public(name: str) -> bool:
    """Report whether a name is for users; __init__ and its like are."""
    return name[0] != "_" or name in MADE or (name[:2] == name[-2:] == "__")


def targets(node: ast.stmt) -> list[ast.expr]:
    """Return what a statement assigns to."""
    return node.targets if isinstance(node, ast.Assign) else []


def attributes(function: ast.FunctionDef) -> set[str]:
    """Return the public names that a method sets on self."""
    return {
        target.attr
        for node in ast.walk(function)
        for target in targets(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
        and public(target.attr)
    }


def definitions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Go through what a module or a class defines."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and public(node.name):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            yield prefix + node.name, "" if "property" in marks else parameters(node)
            if prefix and node.name == "__init__":
                yield from ((prefix + name, "") for name in sorted(attributes(node)))
        elif isinstance(node, ast.ClassDef) and public(node.name):
            yield prefix + node.name, "class of " + ", ".join(map(ast.unparse, node.bases))
            yield from definitions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.If, ast.Try)):
            yield from definitions(node.body, prefix)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            named = targets(node) if isinstance(node, ast.Assign) else [node.target]
            yield from ((prefix + t.id, "") for t in named if isinstance(t, ast.Name) and public(t.id))


def imported(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Go through what a module imports from others of Horovod."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("horovod"):
            yield from ((alias.asname or alias.name, "") for alias in node.names if public(alias.name))


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1], "horovod")
    table: dict[str, dict[str, str]] = {}
    for module in sys.argv[2:] or MODULES:
        path = root.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        body = ast.parse(path.read_text()).body
        table[module] = dict(imported(body)) if sys.argv[2:] else {}
        table[module].update(definitions(body))
    print(json.dumps(table, indent=0))


if __name__ == "__main__":
    main()
