"""Which frameworks there are, and how gorun serves each: for gorun doctor, --check-build and -v.

What is only installed is not imported to learn its version.
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib import metadata, util

from gorun import native

# What users call a framework, its module, and distributions that bring the module.
FRAMEWORKS = {
    "PyTorch": ("torch", ["torch"]),
    "TensorFlow": ("tensorflow", ["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"]),
    "Keras": ("keras", ["keras", "keras-nightly"]),
    "JAX": ("jax", ["jax"]),
}
# Those whose operations are libgorun's, where it loads. Keras uses those of its backend.
NATIVE = ("TensorFlow", "JAX")


def installed() -> dict[str, str]:
    """Return the versions of the frameworks that this Python could import; "" for an unknown one."""
    found = {}
    for name, (module, distributions) in FRAMEWORKS.items():
        if util.find_spec(module) is None:
            continue
        found[name] = ""
        for distribution in distributions:
            try:
                found[name] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    return found


def imported() -> dict[str, str]:
    """Return the versions of the frameworks that this process has imported."""
    modules = {name: sys.modules.get(module) for name, (module, _) in FRAMEWORKS.items()}
    return {name: str(getattr(module, "__version__", "")) for name, module in modules.items() if module}


def described(found: dict[str, str], loads: bool) -> str:
    """Return frameworks with their versions, and what carries out their operations."""
    by = " by libgorun" if loads else ""
    return ", ".join(f"{name} {found[name]}".strip() + (by if name != "Keras" else "") for name in found)


def show() -> None:
    """Say which frameworks the program uses, if that is wanted: GORUN_VERBOSE."""
    if not native.verbose():
        return
    found = imported()
    version = ".".join(map(str, sys.version_info[:3]))
    what = described(found, not native.reason()) or "no framework"
    if native.origin() not in ("", "from memory"):
        what += f", libgorun {native.origin()}"
    print(f"gorun: Python {version}, {what}", file=sys.stderr)


def load_ahead() -> None:
    """Import what torch 2 imports with the first optimizer. That takes seconds, which a spare has."""
    version = imported().get("PyTorch", "").partition(".")[0]
    if version.isdigit() and int(version) >= 2:
        importlib.import_module("torch._dynamo")


def main() -> None:
    """Print what gorun doctor asks for."""
    reason, found = native.reason(), installed()
    answer = {"native": reason, "origin": native.origin(), "frameworks": described(found, not reason)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
