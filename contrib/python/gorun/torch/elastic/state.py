"""The state of a torch training: models, optimizers, samplers and plain values."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Callable

import torch

from gorun import basics
from gorun.elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, meant, of_all
from gorun.objects import broadcast_object
from gorun.sampling import ExactSampler
from gorun.torch import leftover
from gorun.torch.elastic import steps
from gorun.torch.elastic.sampler import ElasticSampler
from gorun.torch.elastic.snapshot import Options
from gorun.torch.elastic.steps import Place, Steps
from gorun.torch.functions import broadcast_optimizer_state, broadcast_parameters


class TorchState(ObjectState):
    """TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0).

    Models, optimizers, their schedulers and scalers, and samplers may have any name: the state saves their
    state_dict(). It keeps a copy of every other value.

    With one DistributedOptimizer, or with DDP in gorun.torch.distributed.elastic.run, a commit() copies no
    weights as soon as the script has shown that it can go on from any step (steps.py). A loss then costs the
    step that it interrupts.
    """

    _steps: Steps | None = None
    _note = ""  # why commit() always copies, until that is printed
    _restored = False  # and nothing was done since

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer, **kwargs}
        self._handlers = {name: handler(value) for name, value in given.items() if _kind(value)}
        values = {name: value for name, value in kwargs.items() if name not in self._handlers}
        for name in ("model", "optimizer"):
            if name not in self._handlers:
                setattr(self, name, None)
        for name in self._handlers:
            setattr(self, name, given[name])
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **values)
        self._own_passes: dict[str, int] = {}  # backward passes for a step of the script, by optimizer
        self._watch_steps()

    def _follow_ddp(self) -> None:
        """Go back to steps also where DDP sums the gradients of a plain optimizer."""
        if self._steps is None:
            self._note = ""
            self._watch_steps(ddp=True)

    def _watch_steps(self, ddp: bool = False) -> None:
        """Go back to steps rather than to copies, if the state allows that."""
        models, optimizers = self._handled(ModelStateHandler), self._handled(OptimizerStateHandler)
        shards = steps.sharded(models, optimizers)
        own = [name for name, h in self._handlers.items() if not (_copies(h) and follows(h))]
        if shards:
            self._note = steps.SHARDED.format(shards)
        elif models or optimizers:
            against = steps.OWN.format(own[0]) if own else steps.obstacle(models, optimizers, ddp)
            if against:
                self._note = steps.COPIES.format(against)
            else:
                parts = {name: h.value for name, h in self._handlers.items()}
                for name in (*models, *optimizers):
                    del parts[name]
                (optimizer,) = optimizers.values()
                self._steps = Steps(models, optimizer, parts, self)

    def _handled(self, kind: type) -> dict[str, Any]:
        return {name: h.value for name, h in self._handlers.items() if isinstance(h, kind)}

    def _progress(self, kept: bool = True) -> None:
        """Note that a step begins, or is committed."""
        self._restored = False
        self._kept = self._kept or kept

    def save(self) -> None:
        """Copy everything, or nothing: model and step belong together. Weights that are safe need no copy."""
        if self._note:
            steps.say(self._note)
            self._note = ""
        self._restored = False
        if self._steps is not None and self._steps.commit():
            self._progress()
        else:
            self._copy()

    def commit(self) -> None:
        """Save the state and let hosts join and leave, but not amid a step of several batches."""
        if not self._amid_step():
            super().commit()

    def check_host_updates(self) -> None:
        """Let hosts join and leave, between two steps."""
        if not self._amid_step():
            super().check_host_updates()

    def _amid_step(self) -> bool:
        return any(isinstance(h.value, ExactSampler) and h.value.amid_step for h in self._handlers.values())

    def _copy(self) -> None:
        with self._steps.copying() if self._steps is not None else contextlib.nullcontext():
            self._copy_all()

    def _copy_all(self) -> None:
        handlers = list(self._handlers.values())
        copied = self._copied()
        keep = [handler.copied() for handler in handlers if _copies(handler)]
        for handler in handlers:
            if not _copies(handler):  # one of the user's own
                handler.save()
        for keep_one in keep:
            keep_one()
        self._keep(copied)

    def restore(self) -> None:
        """Go back to the beginning of the step, or to the last copy, as a script does that calls this."""
        failure, self._failure, self._restored = self._failure, None, True
        stale = self._steps is not None and meant(failure) and self._steps.goes_back()
        self._restore()
        if stale and failure is None and basics.is_initialized() and basics.size() > 1:
            raise HorovodInternalError(steps.APART)

    def _restore(self) -> None:
        leftover.drop()  # the memory of a backward() in which the world may have ended
        for model in self._handled(ModelStateHandler).values():
            for weight in model.parameters():
                weight.grad = None  # of a step that begins again
        if self._steps is not None and self._steps.restore():
            return
        for handler in self._handlers.values():
            handler.restore()
        super().restore()
        if self._steps is not None:
            self._steps.copy_restored()

    def on_reset(self) -> None:
        """Enter a new world."""
        if self._steps is not None and not self._restored and not self._steps.interrupted():
            self._failure = HostsUpdatedInterrupt()
            self.restore()
        super().on_reset()
        self._restored = False
        self._starts()

    def _ended(self) -> None:
        if self._steps is not None:
            self._steps.ended()

    def sync(self) -> None:
        """Take over the newest state of any rank. Only ranks that lack its weights need them."""
        mine = self._steps.place(self._commits) if self._steps is not None else Place(0, 0, self._commits)
        places = of_all(mine, name="gorun.elastic.newest")
        newest = max(places)
        root = places.index(newest)
        behind = not mine.has_weights_of(newest)
        missing = not all(place.has_weights_of(newest) for place in places)
        if self._steps is None:
            self._take_over(root)
        else:
            lineage = basics.world().session.epoch if missing else newest.lineage
            with self._steps.taking(newest, behind, lineage):
                self._take_over(root) if missing else self._take_rest(root)
        if behind:
            self._copy()  # only now: a rank that fails halfway goes back to a consistent copy
        self._commits = newest.commits + 1
        self._starts()

    def _starts(self) -> None:
        """Begin with the state as it is now, in this world."""
        samplers = [h.value for h in self._handlers.values() if isinstance(h.value, ExactSampler)]
        if any(sampler.keeps_batch for sampler in samplers):
            for name, optimizer in self._handled(OptimizerStateHandler).items():
                if hasattr(optimizer, "set_backward_passes_per_step"):
                    own = self._own_passes.setdefault(name, optimizer.backward_passes_per_step)
                    optimizer.backward_passes_per_step = own * max(sampler.passes for sampler in samplers)
        if self._steps is not None:
            self._steps.starts()

    def _take_rest(self, root: int) -> None:
        """Take over what a step changes besides the weights."""
        broadcast_parameters(self._steps.buffers(), root)
        for handler in self._handlers.values():
            if isinstance(handler, OptimizerStateHandler):
                handler.root = root
                handler.sync_options()
            elif not isinstance(handler, ModelStateHandler):
                handler.root = root
                handler.sync()
        super()._take_over(root)

    def _take_over(self, root: int) -> None:
        if not all(follows(handler) for handler in self._handlers.values()):
            root = 0  # all parts come from one rank, to be consistent
        for handler in self._handlers.values():
            handler.root = root
            handler.sync()
        super()._take_over(root)

    def reset(self) -> None:
        """Adapt the samplers to the size of the new world."""
        for handler in self._handlers.values():
            handler.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_handlers", {}):  # a new model or optimizer replaces the old
            if self._steps is not None and value is not self._handlers[name].value:
                self._steps.object(steps.REPLACED)
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)


class StateHandler:
    """Saves and shares one object that has a state_dict()."""

    root = 0  # the rank whose state counts

    def __init__(self, value: Any) -> None:
        self.value = value
        self._saved: Any = None
        self.save()

    def save(self) -> None:
        """Copy the state."""
        self.copied()()

    def copied(self) -> Callable[[], None]:
        """Copy what needs new memory, which may fail. The returned function stores the copy."""
        finish = renewed(self._saved, self.value.state_dict())

        def keep() -> None:
            self._saved = finish()

        return keep

    def restore(self) -> None:
        """Restore the state."""
        self._load(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Take over the root's state; save() keeps it."""
        self._load(broadcast_object(self.value.state_dict(), self.root))

    def _load(self, state: Any) -> None:
        self.value.load_state_dict(state)
        getattr(self.value, "_per_optimizer_states", {}).clear()  # a scaler's, of a step that was cut short

    def reset(self) -> None:
        """Adapt to a new world."""

    def set_value(self, value: Any) -> None:
        """Handle another object from now on."""
        if value is not self.value:
            self.value = value
            self.save()


class ModelStateHandler(StateHandler):
    """A model."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def sync(self) -> None:
        """Take over the root's parameters and buffers."""
        broadcast_parameters(self.value.state_dict(), self.root)


class OptimizerStateHandler(StateHandler):
    """An optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)

    def sync(self) -> None:
        """Take over the root's state and options."""
        broadcast_optimizer_state(self.value, self.root)

    def sync_options(self) -> None:
        """Take over the root's options alone."""
        options = Options(self.value)
        options.groups = broadcast_object(options.groups, self.root)
        options.restore(self.value)


class SamplerStateHandler(StateHandler):
    """An ElasticSampler, or an ExactSampler."""

    def __init__(self, sampler: ElasticSampler | ExactSampler) -> None:
        super().__init__(sampler)

    def reset(self) -> None:
        """Distribute samples over the present ranks."""
        self.value.reset()


def renewed(old: Any, value: Any) -> Callable[[], Any]:
    """Return a function that copies a state, into the memory of the old copy where that fits.

    Allocating memory for every copy would take longer than copying. Memory fits if the same tensors share it
    as in the value. Copies share memory as their originals did, and originals may have parted since, as tied
    weights do.
    """
    kept = _by_memory(old)
    groups = [(tensors, kept.get(uses, [])) for uses, tensors in _by_memory(value).items()]
    pairs = [pair for tensors, copies in groups for pair in zip(tensors, copies)]
    result = copy.deepcopy(value, {id(tensor): copied for tensor, copied in pairs})

    def finish() -> Any:  # only when nothing can fail any more: until then the old copy is complete
        for tensor, copied in pairs:
            copied.copy_(tensor)
        return result

    return finish


def _by_memory(state: Any) -> dict[tuple[Any, ...], list[torch.Tensor]]:
    """Return the tensors of a state that may be overwritten, by their memory and its users."""
    uses: dict[Any, list[tuple[Any, torch.Tensor]]] = {}

    def visit(path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, (dict, list, tuple)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                visit((*path, key), item)
        elif type(value) is torch.Tensor and value.layout is torch.strided and not value.requires_grad:
            offset = value.storage_offset()
            use = (path, value.shape, value.stride(), offset, value.dtype, value.device)
            memory = (value.device, value.data_ptr() - offset * value.element_size())
            uses.setdefault(memory, []).append((use, value))

    visit((), state)
    return {
        tuple(use for use, _ in users): [tensor for _, tensor in users]
        for users in uses.values()
        if all(_dense(tensor) for _, tensor in users)
    }


def _dense(tensor: torch.Tensor) -> bool:
    """Report whether each element has a place of its own, without gaps, unlike in an expanded tensor."""
    end = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape)):
        if length > 1 and stride != end:
            return False
        end *= length
    return tensor.numel() > 0 and tensor.device.type != "meta"


def _copies(handler: Any) -> bool:
    """Report whether a handler saves in two steps, as the handlers here do."""
    return getattr(type(handler), "save", None) is StateHandler.save


def follows(handler: Any) -> bool:
    """Report whether a handler takes the root's rank. A handler of the user's own always gets rank 0."""
    known = (StateHandler.sync, ModelStateHandler.sync, OptimizerStateHandler.sync)
    return getattr(type(handler), "sync", None) in known


def _of_optimizers() -> list[type]:
    """Return the types whose objects refer to an optimizer, so that a copy would copy that, too."""
    schedulers = torch.optim.lr_scheduler
    scheduler = getattr(schedulers, "LRScheduler", None) or schedulers._LRScheduler  # before torch 2
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler  # before torch 2.3
    return [scheduler, schedulers.ReduceLROnPlateau, scaler]  # the second is not always one of the first


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (ExactSampler, SamplerStateHandler),
    *((kind, StateHandler) for kind in _of_optimizers()),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Return the pairs of type and handler that a TorchState uses; the first that fits counts."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Make every later TorchState use these pairs."""
    global _registry
    _registry = registry


def _kind(value: Any) -> type[StateHandler] | None:
    return next((handler for kind, handler in _registry if isinstance(value, kind)), None)


def handler(value: Any) -> StateHandler:
    """Return a handler for a model, an optimizer, a sampler, or another type in the registry."""
    kind = _kind(value)
    if kind is None:
        raise ValueError(f"there is no handler for a {type(value).__name__}")
    return kind(value)
