"""Tells when a model's forward pass begins, and hinders nothing that copies, saves or compiles the model."""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from gorun.torch.elastic.steps import Steps


def watch(models: Iterable[torch.nn.Module], steps: Steps) -> list[Any]:
    """Have steps hear of each forward pass, until all handles that are returned are removed."""
    _let_script()
    return [model.register_forward_pre_hook(_Hook(steps)) for model in models]


class _Hook:
    """Tells Steps that a forward pass begins. A copy of the model has one that tells nothing."""

    def __init__(self, steps: Steps) -> None:
        self._steps = weakref.ref(steps)

    def __call__(self, model: torch.nn.Module, _: Any) -> None:
        if not _compiling() and not torch.jit.is_tracing():
            steps = self._steps()
            if steps is not None:
                steps.forward(model)

    def __reduce__(self) -> Any:
        # A model that was saved whole can be loaded where there is no gorun: {}.get(model, inputs) is inputs.
        return getattr, ({}, "get")


def ddp(frame: types.FrameType | None) -> list[torch.nn.Module]:
    """Return the DDP in whose forward pass a frame is."""
    while frame is not None:
        module = frame.f_locals.get("self")
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            return [module]
        frame = frame.f_back
    return []


_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)


def _let_script() -> None:
    """Have torch.jit.script() see models without these hooks, which it cannot compile."""
    recursive = getattr(torch.jit, "_recursive", None)
    create = getattr(recursive, "create_script_module", None)
    if create is None or hasattr(create, "without_hooks"):
        return

    @functools.wraps(create)
    def scripted(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _aside(module):
            return create(module, *args, **kwargs)

    scripted.without_hooks = True  # type: ignore[attr-defined]
    recursive.create_script_module = scripted


@contextlib.contextmanager
def _aside(module: torch.nn.Module) -> Iterator[None]:
    """Take the hooks off a module and those in it, in this context."""
    before = []
    for hooks in [m._forward_pre_hooks for m in module.modules()]:
        if any(map(_tells, hooks.values())):
            before.append((hooks, dict(hooks)))
            for key in [key for key, hook in hooks.items() if _tells(hook)]:
                del hooks[key]
    try:
        yield
    finally:
        for hooks, all_of_them in before:
            hooks.clear()
            hooks.update(all_of_them)


def _tells(hook: Any) -> bool:
    """Report whether this is a hook of ours, or what one has become in a copy of its model."""
    copied = isinstance(hook, types.BuiltinMethodType) and hook.__name__ == "get" and hook.__self__ == {}
    return copied or isinstance(hook, _Hook)
