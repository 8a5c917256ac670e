"""What a step changes besides weights and their optimizer's state: copied when the step begins.

This takes tens of microseconds, in memory that is kept from step to step.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterable
from typing import Any

import torch

_VIEW = 8  # elements of each weight in a sample


class Buffers:
    """A copy of the buffers of some models, which a forward pass changes, as batch normalization does."""

    def __init__(self, models: Iterable[torch.nn.Module]) -> None:
        modules = [module for model in models for module in model.modules()]
        # By name, because a module may put another tensor into its place.
        self._places = [(m._buffers, name) for m in dict.fromkeys(modules) for name in m._buffers]
        self._kept: list[torch.Tensor | None] = [None] * len(self._places)

    def tensors(self) -> list[torch.Tensor]:
        """Return the buffers themselves."""
        return [tensor for tensor in map(_get, self._places) if tensor is not None]

    def keep(self) -> None:
        """Copy the buffers. Native kernels do not count what they write, so each is copied each time."""
        kept, now, into, fits = self._kept, [*map(_get, self._places)], [], []
        for i, tensor in enumerate(now):
            old = kept[i]
            if old is None or tensor is None or not _alike(old, tensor):
                kept[i] = None if tensor is None else tensor.detach().clone()
            else:
                into.append(old)
                fits.append(tensor)
        _copy(into, fits)

    def restore(self) -> None:
        """Set the buffers back."""
        for (owner, name), kept in zip(self._places, self._kept):
            tensor = owner.get(name)
            if kept is None or tensor is None or not _alike(kept, tensor):
                owner[name] = None if kept is None else kept.clone()
            else:
                with torch.no_grad():
                    tensor.copy_(kept)


def _get(place: tuple[dict[str, Any], str]) -> torch.Tensor | None:
    return place[0].get(place[1])


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and a.device == b.device


def _copy(into: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    with torch.no_grad():
        if hasattr(torch, "_foreach_copy_"):
            if into:
                torch._foreach_copy_(into, tensors)
            return
        for target, tensor in zip(into, tensors):  # before torch 2.1
            target.copy_(tensor)


class Generators:
    """A copy of the states of the random number generators that scripts do not hold themselves."""

    def __init__(self) -> None:
        self._random = random.getstate()
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> None:
        """Set the generators back."""
        random.setstate(self._random)
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


class Options:
    """A copy of an optimizer's options, such as its learning rate."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        groups = optimizer.param_groups
        self.groups = [{k: copy.deepcopy(v) for k, v in g.items() if k != "params"} for g in groups]

    def restore(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the options back."""
        for group, kept in zip(optimizer.param_groups, self.groups):
            group.update(copy.deepcopy(kept))


class Part:
    """A copy of the state of a sampler, a scheduler or a scaler."""

    def __init__(self, value: Any) -> None:
        inside = getattr(value, "__dict__", {})
        # A scaler's state_dict() would wait for the GPU.
        self._scaled = {name: tensor.clone() for name, tensor in inside.items() if _scales(name, tensor)}
        self.state = None if self._scaled else copy.deepcopy(value.state_dict())

    def restore(self, value: Any) -> None:
        """Set it back."""
        for name, tensor in self._scaled.items():
            getattr(value, name).copy_(tensor)
        if not self._scaled:
            value.load_state_dict(copy.deepcopy(self.state))
        getattr(value, "_per_optimizer_states", {}).clear()  # a scaler's, of the step that was cut short


def _scales(name: str, value: Any) -> bool:
    return name in ("_scale", "_growth_tracker") and isinstance(value, torch.Tensor)


class Sample:
    """Some elements of each weight. Two samples tell whether the weights were written in between.

    It misses who writes a few elements only. Their tensors' version counters tell, except for writes through
    .data and NumPy, which they do not count.
    """

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        self.weights = [w for w in dict.fromkeys(weights) if w.numel()]
        self._here = all(weight.device.type == "cpu" for weight in self.weights)
        self._look()
        self.take()

    def _look(self) -> None:
        groups: dict[Any, list[torch.Tensor]] = {}
        for weight in self.weights:
            groups.setdefault((weight.device, weight.dtype), []).append(_few(weight.detach()))
        self._groups, self._memory = list(groups.values()), self.memory()

    def memory(self) -> list[int]:
        """Return where the weights are."""
        return [weight.data_ptr() for weight in self.weights]

    def take(self) -> None:
        """Note the weights as they are now. This does not wait for a GPU."""
        self._taken = [torch.cat(group) for group in self._groups]
        self._versions = self.versions()

    def versions(self) -> int:
        """Return how often torch has written the weights."""
        return sum([weight._version for weight in self.weights])

    def written(self) -> bool:
        """Report whether torch has written the weights since take(), or other memory was given to them."""
        if self.memory() != self._memory:
            self._look()
            if self.differs():
                return True
        return self.versions() != self._versions

    def changed(self) -> bool:
        """Report whether the weights were written since take(), if that takes no wait for a GPU."""
        return self.written() or (self._here and self.differs())

    def differs(self) -> bool:
        """Report whether the weights have other elements than at take()."""
        return b"".join(_bytes(torch.cat(group)) for group in self._groups) != self.digest()

    def intact(self) -> bool:
        """Report whether nobody has written the weights since take(), as far as can be seen."""
        return not self.written() and self.digest() == Sample(self.weights).digest()

    def digest(self) -> bytes:
        """Return the elements that take() has noted."""
        return b"".join(map(_bytes, self._taken))


def _few(weight: torch.Tensor) -> torch.Tensor:
    """Return a view of some elements."""
    flat = weight.view(-1) if weight.is_contiguous() else weight.select(0, 0)
    while flat.dim() > 1:
        flat = flat.select(0, 0)
    if not flat.dim():
        flat = flat.unsqueeze(0)
    return flat[:: max(1, -(-flat.numel() // _VIEW))]


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()
