#!/usr/bin/env python3
"""Write the pages of docs/reference about the interfaces for Python, C and Go, from docstrings and comments.

    contrib/tools/api.py           # writes them anew: make reference
    contrib/tools/api.py --check   # fails if they are older than the code

Nothing is imported: the pages are the same whatever frameworks this machine has. Go's page is what go doc prints.
"""

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "contrib/python"
WRITTEN = "\nThis page is written by `make reference`.\n"

# The modules that programs import, and what users know them by: the page has a section for each line.
MODULES = {
    "gorun": "Where the time of a rank goes, for programs that gorun cannot see into: `import gorun`",
    "gorun.torch": "PyTorch: `import gorun.torch as hvd`, or `horovod.torch`",
    "gorun.tensorflow": "TensorFlow: `import gorun.tensorflow as hvd`, or `horovod.tensorflow`",
    "gorun.tensorflow.elastic": "State of TensorFlow that survives the loss of ranks: `hvd.elastic`",
    "gorun.keras": "Keras: `import gorun.keras as hvd`, or `horovod.keras`",
    "gorun.keras.callbacks": "Its callbacks: `hvd.callbacks`",
    "gorun.keras.elastic": "State of Keras that survives the loss of ranks: `hvd.elastic`",
    "gorun.jax": "JAX: `import gorun.jax as hvd`, or `horovod.jax`",
    "gorun.jax.elastic": "State of JAX that survives the loss of ranks: `hvd.elastic`",
    "gorun.numpy": "NumPy: `import gorun.numpy as hvd`",
    "gorun.torch.elastic": "State of PyTorch that survives the loss of ranks: `hvd.elastic`, or `horovod.torch.elastic`",
    "gorun.sampling": "Samples of an epoch, each once, whatever worlds there are: no framework needed",
    "gorun.elastic": "The same for programs without PyTorch: `import gorun.elastic`",
    "gorun.torch.distributed": "A backend of torch.distributed: `import gorun.torch.distributed`",
    "gorun.torch.distributed.elastic": "Elastic training with DDP: `gorun.torch.distributed.elastic.run`",
    "gorun.launch": "Start a function on many ranks: `gorun.run`, or `horovod.run`",
    "gorun.ray": "Functions on actors of a Ray cluster: `horovod.ray`",
    "gorun.spark": "Functions on tasks of a Spark application: `horovod.spark`",
    "gorun.wire": "How sums travel between hosts: `gorun.wire_compression`",
}

# Functions that a module gets from methods of an object: the class, and where it is.
METHODS = {"gorun": ("gorun.counters", "Counters", ("loading", "step"))}


class Module:
    """The source of a module of the binding."""

    def __init__(self, name: str) -> None:
        path = PYTHON / name.replace(".", "/")
        self.path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.name, self.tree = name, ast.parse(self.path.read_text())

    def exported(self) -> list[str]:
        """Return the names of __all__, or those without an underscore that the module defines."""
        names: list[str] = []
        for node in self.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and target.id == "__all__":
                if isinstance(node.value, ast.Name):
                    names += self.found_module(node.value.id).exported()
                else:
                    names += ast.literal_eval(node.value)
        defined = [n.name for n in self.tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        return sorted(set(names)) or sorted(n for n in defined if not n.startswith("_"))

    def found_module(self, alias: str) -> "Module":
        """Return the module whose __all__ is imported by another name."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and any(a.name == "__all__" and a.asname == alias for a in node.names):
                return Module(node.module)
        raise SystemExit(f"{self.path}: {alias} is imported from nowhere")

    def definition(self, name: str, seen: "tuple[str, ...]" = ()) -> "ast.FunctionDef | ast.ClassDef | None":
        """Return where a name is defined, here or in a module of gorun from which it comes."""
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return node
            if isinstance(node, ast.Assign) and ast.unparse(node) == f"{name} = _operations.{name}":
                return method(Module("gorun.operations"), "Operations", name)
        for node in self.tree.body:
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("gorun") or node.module in seen:
                continue
            there = PYTHON / node.module.replace(".", "/")
            if not (there.is_dir() or there.with_suffix(".py").exists()):
                continue
            module = Module(node.module)
            for alias in node.names:
                if alias.name == "*" and name in module.exported() or (alias.asname or alias.name) == name:
                    found = module.definition(name if alias.name == "*" else alias.name, (*seen, self.name))
                    if found is not None:
                        return found
        return None


def method(module: Module, of: str, name: str) -> "ast.FunctionDef | None":
    """Return a method of a class, also one that waits for what another one starts."""
    for node in module.definition(of).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and ast.unparse(node).startswith(f"{name} = _waiting("):
            start, returns, text = node.value.args
            args = method(module, of, start.id).args
            return ast.FunctionDef(name, args, [ast.Expr(text)], [], ast.parse(returns.value).body[0].value)
    return None


def parameters(node: ast.FunctionDef) -> list[str]:
    """Return the names of a function's parameters."""
    args = node.args
    return [a.arg for a in [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg] if a]


def signature(node: ast.FunctionDef, name: str) -> str:
    """Return a function's name and parameters."""
    args = node.args
    args.posonlyargs = [a for a in args.posonlyargs if a.arg != "self"]
    args.args = [a for a in args.args if a.arg not in ("self", "cls")]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({ast.unparse(args)}){returns}"


def starred(text: str) -> str:
    """Return prose in which stars outside code are what they are, and calls with stars are code."""
    parts = re.sub(r"(?<!`)\b\w+\([^)`]*\*[^)`]*\)", r"`\g<0>`", text).split("`")
    return "`".join(part if i % 2 else part.replace("*", "\\*") for i, part in enumerate(parts))


def listed(text: str, names: list[str]) -> str:
    """Return prose in which the lines that begin with a parameter and a colon are items of a list."""
    out: list[str] = []
    for paragraph in text.split("\n\n"):
        items: list[str] = []
        for line in paragraph.splitlines():
            m = re.match(r"(\w+(?:, \w+)*): (.*)", line)
            if m and set(m[1].split(", ")) <= set(names):
                items.append("- " + ", ".join(f"`{name}`" for name in m[1].split(", ")) + f": {m[2]}")
            elif items:
                items[-1] += "\n  " + line.strip()
            else:
                out.append(line)
        out += ["", *items, ""] if items else [""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


def broken(text: str) -> str:
    """Return a signature that is long with a line for each parameter."""
    if len(text) <= 100:
        return text
    call = ast.parse(f"def {text}: ...").body[0]
    args = call.args
    plain = [*args.posonlyargs, *args.args]
    given = [*zip(plain, [None] * (len(plain) - len(args.defaults)) + args.defaults)]
    if args.vararg or args.kwonlyargs:
        given.append((ast.arg("*" + (ast.unparse(args.vararg) if args.vararg else "")), None))
    given += zip(args.kwonlyargs, args.kw_defaults)
    if args.kwarg:
        given.append((ast.arg("**" + ast.unparse(args.kwarg)), None))
    lines = [ast.unparse(arg) + (f" = {ast.unparse(default)}" if default else "") for arg, default in given]
    returns = f" -> {ast.unparse(call.returns)}" if call.returns else ""
    return f"{call.name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){returns}"


def entry(name: str, node: "ast.FunctionDef | ast.ClassDef") -> str:
    """Return a function or class in Markdown."""
    text = starred(ast.get_docstring(node) or "")
    if isinstance(node, ast.FunctionDef):
        return f"\n```python\n{broken(signature(node, name))}\n```\n\n{listed(text, parameters(node))}\n"
    members = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    inits = [n for n in members if n.name == "__init__"]
    text = listed(text, parameters(inits[0]) if inits else [])
    out = f"\n```python\nclass {broken(signature(inits[0], name)) if inits else name}\n```\n\n{text}\n"
    for member in members:
        if not member.name.startswith("_") and ast.get_docstring(member):
            out += f"\n- `{signature(member, member.name)}`: {starred(' '.join(ast.get_docstring(member).split()))}"
    return out.rstrip("\n") + "\n"


def python_page() -> str:
    """Return the page of the Python binding."""
    out = (
        "# Python interface\n\nWhat Horovod has too has Horovod's names and meanings. "
        "[Migrate from horovodrun](../migrate/horovodrun.md#what-differs) lists what differs.\n"
    )
    for name, title in MODULES.items():
        module = Module(name)
        about = ast.get_docstring(module.tree) or ""
        out += f"\n## {name}\n\n{title}.\n\n{fenced(about)}"
        plain = []
        source, owner, functions = METHODS.get(name, ("", "", ()))
        for exported in functions or module.exported():
            node = method(Module(source), owner, exported) if functions else module.definition(exported)
            if node is None:
                plain.append(f"`{exported}`")
            else:
                out += entry(exported, node)
        if plain:
            out += f"\nConstants and modules: {', '.join(plain)}.\n"
    return out + WRITTEN


def fenced(text: str) -> str:
    """Return prose with its indented parts as blocks of code."""
    out = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            lines = [line[4:] for line in paragraph.splitlines()]
            paragraph = "\n".join(["```python", *lines, "```"])
        out.append(paragraph)
    return "\n\n".join(out) + "\n"


def c_page() -> str:
    """Return the page of the C binding: the header's comments as text, its declarations as code."""
    text = (ROOT / "contrib/c/gorun.h").read_text()
    about, rest = re.match(r"/\* (.*?) \*/\n(.*)", text, re.DOTALL).groups()
    lines = [re.sub(r"^ \* ?", "", line) if line.startswith(" *") else line for line in about.splitlines()]
    lines = [line if line.startswith("    ") else line.strip(" *") for line in lines]
    out = "# C interface\n\n" + fenced("\n".join(lines)).replace("```python", "```c") + "\n## Declarations\n"
    rest = rest.partition("#endif\n")[2].rpartition("#ifdef __cplusplus")[0]
    rest = re.sub(r"\t/\* (begin|end) table.*?\*/\n", "", rest)
    for part in rest.strip().split("\n\n"):
        comment = re.match(r"/\* (.*?) ?\*/\n?(.*)", part, re.DOTALL)
        code = part
        if comment:
            words = starred(" ".join(re.sub(r"^ \*", "", line).strip() for line in comment[1].splitlines()))
            out, code = out + f"\n{words}\n", comment[2]
        if code.strip():
            out += f"\n```c\n{code.strip()}\n```\n"
    return out + WRITTEN


def go_page() -> str:
    """Return the page of the Go package, as go doc shows it."""
    module = (ROOT / "go.mod").read_text().split(None, 2)[1]

    def documented(*what: str) -> str:
        return subprocess.run(["go", "doc", *what], cwd=ROOT, capture_output=True, text=True, check=True).stdout.rstrip()

    out = f"# Go interface\n\nPackage `{module}/worker/rank` is for programs in Go whose processes are ranks. "
    out += "[C and Go programs](../guides/c-and-go.md) shows\none.\n"
    out += f"\n```text\n{documented('-all', './worker/rank')}\n```\n"
    out += "\n## Types of an Operation\n\nThe fields of an `Operation` take constants of these types:\n"
    for package, name in (
        ("collective", "Kind"), ("collective/kernel", "Type"), ("collective/kernel", "Op"), ("collective/kernel", "Coding"),
    ):  # fmt: skip
        text = documented(f"./{package}.{name}")
        short = re.search(r"^const (\w+) .*\.\.\.$", text, re.MULTILINE)  # go doc shows the first constant only
        constants = documented(f"./{package}.{short[1]}").partition("\n\n")[2]
        text = text.replace(short[0], constants + "\n")
        out += f"\n### {package.rpartition('/')[2]}.{name}\n\n```text\n{text}\n```\n"
    return out + WRITTEN


def main() -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    old = []
    for name, page in {"python.md": python_page(), "c.md": c_page(), "go.md": go_page()}.items():
        file = ROOT / "docs/reference" / name
        if not file.exists() or file.read_text() != page:
            old.append(str(file.relative_to(ROOT)))
            if not check:
                file.write_text(page)
    if check and old:
        sys.exit(f"older than the code: {', '.join(old)}; make reference writes them anew")


if __name__ == "__main__":
    main()
