"""Goes back to the beginning of a step without a copy of the weights.

A DistributedOptimizer writes the weights only when the sums of all gradients have arrived, and so does the
optimizer of a script whose backward() ends with DDP's sums (updates.py). Until then they are those that the
step began with, so between two updates the weights themselves are what was committed.
Steps copies what else a step changes when it begins (snapshot.py), and counts updates. A rank that a loss
interrupts is in one of two places:

- its weights have as many updates as when the step began: the step is done again;
- they have one more, because the loss came between the update and the next step: the step is done again for
  its other effects, and its update is left out.

Ranks differ by one update at most, because the sums of a step need all of them. In the next world those that
are behind take the state of one that is not. sync() compares places for that.

That holds as long as nobody else writes the weights, and the script can begin with any step (evidence.py).
What breaks it is noticed by torch's version counters at each update, or at the latest by a sample of the
weights after a loss. So commit() still copies everything now and then, for 1/400 of the time, and always once
something was noticed.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from gorun import basics
from gorun.process_sets import global_process_set
from gorun.sampling import ExactSampler
from gorun.torch.elastic import hooks, loops, updates
from gorun.torch.elastic.evidence import Evidence, differing
from gorun.torch.elastic.snapshot import Buffers, Generators, Options, Part, Sample
from gorun.torch.optimizer import _DistributedAdasumOptimizer, _DistributedOptimizer

if TYPE_CHECKING:
    from gorun.torch.elastic.state import TorchState

COPIES = "gorun: note: commit() copies the weights, and a loss costs the steps since then: {}"
SHARDED = (
    "gorun: warning: {} is sharded: a rank that is lost takes its shards with it\n"
    "gorun: hint: let the script save checkpoints, and load the last one when the function of run() begins"
)
WRITTEN = "something other than optimizer.step() has written them"
UNSEEN = "no forward pass of the state's model, in training mode, begins the step"
CLOSURE = "optimizer.step() is given a closure"
UNSUMMED = "optimizer.step() was not preceded by the sums of the gradients"
REPLACED = "the script has put another object into the state"
OWN = "the script handles {} itself"
BACK = "the script itself goes back to its commits"
OLD = "gorun: warning: the script goes back to a copy of {:.0f} s ago: no later commit has one"
APART = "restore() went back to an old copy, and other ranks may have others: all take the newest"
SLOW = "what a step changes besides them takes {:.0f} % of the time to copy"
COPY_SHARE = 400  # a copy that takes a second is renewed after so many
STEP_SHARE = 0.02  # of the time, which copies of what a step changes may take
STEP_SECONDS = 0.5  # that they may take in any case


@dataclass(order=True, frozen=True)
class Place:
    """How far a rank's state is. The greatest place is the newest."""

    applied: int  # updates in the weights
    begun: int  # updates in them when the state's values, buffers and generators were copied
    commits: int
    lineage: int = field(default=0, compare=False)  # the epoch in which ranks shared the weights, or 0
    digest: bytes = field(default=b"", compare=False)  # of a sample of the weights
    proven: bool = field(default=False, compare=False)
    exact: bool = field(default=False, compare=False)  # the values are those of a step, not of a commit
    size: int = field(default=1, compare=False)  # ranks in the step's world
    moved: frozenset[str] = field(default=frozenset(), compare=False)  # values that steps have changed

    def has_weights_of(self, other: Place) -> bool:
        """Report whether this rank has the same weights as another."""
        mine, its = ((p.lineage, p.applied, p.digest) for p in (self, other))
        return self.lineage != 0 and mine == its


class Steps:
    """The steps of one state."""

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        optimizer: torch.optim.Optimizer,
        parts: Mapping[str, Any],
        state: TorchState,
    ) -> None:
        self.applied = self.begun = self.lineage = 0
        self.values: dict[str, Any] = {}  # of the state, when the step began
        self.against = ""  # why the weights are not what was committed
        self._models, self._optimizer, self._parts = list(models.values()), optimizer, parts
        self._state = weakref.proxy(state)  # which has this object
        self._samplers = frozenset(name for name, part in parts.items() if hasattr(part, "reset"))
        self._evidence = Evidence(self._samplers, frozenset(parts) - self._samplers)
        self._loop: loops.Loop | None = None  # of the last update
        self._buffers = Buffers(self._models)
        self._sample = self._sampled()
        self._clock, self._cpu = time.monotonic, time.thread_time
        self._since, self._spent = self._clock(), 0.0
        self._copied_at, self._copy_took = float("-inf"), 0.0
        self._copy_place = 0, 0, 1  # applied, begun and size
        self._fresh = True  # the last copy is that of the last commit
        self._committed: tuple[int, dict[str, Any]] = 0, {}  # updates in the weights then, and the values
        self._torn = False  # the weights are partly those of another rank
        self._running = False  # the training function, in a job that may lose ranks
        self._live = False  # the first step since the script started has begun
        self._checks = True  # that step's values should be those that the script started with
        updates.watch(optimizer, self)
        self._hooks: list[Any] = []  # on the models, while the script trains
        self._snapshot(exact=True)

    def _sampled(self) -> Sample:
        weights = [weight for model in self._models for weight in model.parameters()]
        return Sample([*weights, *_weights(self._optimizer)])

    @property
    def proven(self) -> bool:
        """Report whether the weights are what was committed, as long as nobody writes them."""
        return self._evidence.proven and not self.against and self._running

    # What the optimizer and the models tell.

    def forward(self, model: torch.nn.Module) -> None:
        """Note that a model's forward pass begins."""
        if not model.training or not torch.is_grad_enabled() or self.against:
            return
        if not self._due and not self._dropped():
            return
        begin = self._cpu()
        if not self._live and updates.by_ddp(self._optimizer):
            self._hooks += hooks.watch(hooks.ddp(sys._getframe(1)), self)  # it may exchange something first
        self._settle()
        if self._live:
            for part in self._parts.values():
                if isinstance(part, ExactSampler):
                    part.repeat(0)  # the step has moved past that batch, or does not use the sampler
            self._snapshot(exact=True)
            self._evidence.began(self._told)
            self._state._progress(self.proven)
        else:
            self._live = True
            if self._checks:
                proven = self.proven
                early = self._evidence.first(self._tell(self._state._copied()))
                if proven:  # the step began with these values changed already: they have changed twice
                    self._set_back(early)
        self._due, self._seen = False, True
        self._spent += self._cpu() - begin
        if self._evidence.against:
            self.object(self._evidence.against)
        elif self._spent > STEP_SECONDS:  # large values of the script's, or very short steps
            share = self._spent / (self._clock() - self._since)
            if share > STEP_SHARE:
                self.object(SLOW.format(100 * share))

    def _settle(self) -> None:
        """Take no offence at a DDP that was made: it has written into the weights what they had."""
        if not self._live and updates.by_ddp(self._optimizer) and not self._sample.differs():
            self._sample.take()

    def _dropped(self) -> bool:
        """Report whether DDP's sums of the step have arrived, and the gradients have gone unused."""
        if not updates.by_ddp(self._optimizer) or updates.Sums.begun == self._sums:
            return False
        return not any(w.grad is not None and w.grad.any() for w in self._sample.weights)

    def _under_way(self) -> bool:
        """Report whether a part of the step's gradients is there."""
        if updates.by_ddp(self._optimizer):
            return self._seen and not self._due
        return self._optimizer._reducer.under_way

    def summed(self) -> None:
        """Note that all sums of a step have arrived: what comes next is the update, unless it is dropped."""
        self._due = True

    def before_update(self, closure: bool, summed: bool) -> bool:
        """Return whether the optimizer should update the weights. They may have this update already."""
        if self._running and not self.against:
            if closure or not summed:
                self.object(CLOSURE if closure else UNSUMMED)
            elif not self._seen:
                self.object(UNSEEN)
            elif self._sample.written():
                self.object(WRITTEN)
        return not self._ahead

    def after_update(self) -> None:
        """Note that a step has ended."""
        if self._ahead:
            self._ahead = False
        else:
            self.applied += 1
        if not self._running:
            self.begun = self.applied
        elif not self.against:
            self._sample.take()
            if not self._evidence.proven:
                self._loop = loops.around(sys._getframe(1))
        self._due, self._seen = True, False

    # What the state tells.

    def commit(self) -> bool:
        """Note a commit; return whether it needs no copy."""
        values = self._state._copied()
        if not self._running:
            self._snapshot(exact=False, values=values)
            return False
        self._settle()
        told = self._tell(values)
        self._committed = self.applied, told
        if not self.against and self._sample.changed():
            self.object(WRITTEN)
        if not self.against:
            inside = not self._evidence.proven and loops.within(self._loop, sys._getframe(1))
            self._evidence.committed(told, inside)
        under_way = self._under_way()  # a part of the step: it begins where it began
        if not under_way and not (self.proven and self._repeats(told)):
            self._snapshot(exact=False, values=values)
        self._fresh = False
        due = self._clock() - self._copied_at >= COPY_SHARE * self._copy_took
        return self.proven and (under_way or not due)

    def _repeats(self, told: Mapping[str, Any]) -> bool:
        """Report whether the script, given these values, would begin with the step that it has applied."""
        return self.applied > self.begun and not differing(self._told, told) & {*self.values, *self._samplers}

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Note a copy of everything, which the context makes."""
        start = self._clock()
        yield
        self._fresh, self._copied_at = True, self._clock()
        self._copy_took = self._copied_at - start
        self._copy_place = self.applied, self.begun, self._size

    def restore(self) -> bool:
        """Go back to the beginning of the step; return False if that takes the copy."""
        self._settle()
        if not self.proven or self._torn or not self._sample.intact():
            if self.proven and not self._torn:
                self.object(WRITTEN)
            return False
        updates.forget(self._optimizer)
        self._buffers.restore()
        self._generators.restore()
        self._set_back({*self._kept, *self.values})
        self._options.restore(self._optimizer)
        return True

    def _set_back(self, names: set[str]) -> None:
        """Set values and parts of the state to what the step began with."""
        for name in names & self._kept.keys():
            self._kept[name].restore(self._parts[name])
        for name in names & self.values.keys():
            setattr(self._state, name, copy.deepcopy(self.values[name]))
        if names - self.values.keys():  # a scheduler, for example
            self._options.restore(self._optimizer)

    def goes_back(self) -> bool:
        """Note that the script itself goes back to a commit; report whether it gets an older one.

        The beginning of the step does not serve: its weights may be the reason, unless they are those of the
        commit. Then the values must be, too, but the script may have set some before the forward pass.
        """
        applied, told = self._committed
        committed = self.begun == self.applied == applied and not differing(told, self._told)
        if committed and self.proven and not self._torn and self._sample.intact():
            return False
        if not self._fresh:
            say(OLD.format(self._clock() - self._copied_at))
        self.object(BACK)
        return not self._fresh

    def copy_restored(self) -> None:
        """Note that the state has gone back to its last copy."""
        self.lineage, self._torn = 0, False
        self._snapshot(exact=False)
        self.applied, self.begun, self._size = self._copy_place
        self._sample.take()

    def interrupted(self) -> bool:
        """Settle a step that HostsUpdatedInterrupt has ended; return False if it must be restored."""
        values = self._state._copied()
        if self.proven and (self._under_way() or self._repeats(self._tell(values))):
            return False
        self._snapshot(exact=False, values=values)
        return True

    def place(self, commits: int) -> Place:
        """Return how far this rank is."""
        digest = hashlib.sha256(self._sample.digest()).digest()[:8]
        lineage = self.lineage if self.proven and not self._torn else 0
        at = self.applied, self.begun, commits, lineage, digest, self.proven, self._exact, self._size
        return Place(*at, self._evidence.moved)

    @contextlib.contextmanager
    def taking(self, newest: Place, behind: bool, lineage: int) -> Iterator[None]:
        """Take over the state of a rank whose place is the newest, which the context does."""
        self._torn = behind
        yield
        self._torn = self._fresh = False
        self.applied, self.lineage = newest.applied, lineage
        self._evidence.moved = newest.moved
        self._evidence.proven = newest.proven and not self._evidence.against
        self._snapshot(exact=newest.exact)
        self.begun, self._size = newest.begun, newest.size

    def starts(self) -> None:
        """Note that the training function begins, with the state as it is now."""
        if not basics.elastic():
            return
        self._running = True
        begun, exact, size = self.begun, self._exact, self._size
        self._snapshot(exact=exact)
        self.begun = begun
        if self.applied > begun:  # the update that is left out was of the samples of another world
            self._size = size
        for part in self._parts.values():
            if isinstance(part, ExactSampler):
                part.repeat(size if self.applied > begun else 0)
        self._evidence.started(self._told)
        self._sample = self._sampled()  # the weights may have moved to other memory
        self._ahead = self.applied > self.begun
        self._live, self._due, self._checks = False, True, exact
        if not self._hooks and not self.against:
            self._hooks = hooks.watch(self._models, self)

    def ended(self) -> None:
        """Note that the training function has ended: whatever the script does with the weights is its own."""
        self._running = self._ahead = False
        self.begun = self.applied
        self._unhook()

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def buffers(self) -> list[torch.Tensor]:
        """Return the models' buffers."""
        return self._buffers.tensors()

    def object(self, against: str) -> None:
        """Copy everything at each commit from now on."""
        if not self.against:
            self.against = against
            self._unhook()
            say(COPIES.format(against))

    def _snapshot(self, exact: bool, values: dict[str, Any] | None = None) -> None:
        """Copy what a step changes besides the weights."""
        self._kept = {name: Part(part) for name, part in self._parts.items()}
        self.values = self._state._copied() if values is None else values
        self._told = {**self.values, **{name: kept.state for name, kept in self._kept.items()}}
        self._buffers.keep()
        self._options = Options(self._optimizer)
        self._generators = Generators()
        self.begun, self._exact, self._ahead = self.applied, exact, False
        self._size = basics.size() if basics.is_initialized() else 1
        self._due, self._seen, self._sums = True, False, updates.Sums.begun

    def _tell(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return what tells one step from another."""
        return {**values, **{name: Part(part).state for name, part in self._parts.items()}}


def _weights(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def obstacle(models: Mapping[str, Any], optimizers: Mapping[str, Any], ddp: bool = False) -> str:
    """Return why the weights of a state cannot be what was committed, or nothing.

    With ddp, a plain optimizer has its gradients from DDP.
    """
    if len(optimizers) != 1 or not models:
        return f"the state has {len(models) or 'no'} models and {len(optimizers) or 'no'} optimizers"
    ((name, optimizer),) = optimizers.items()
    if isinstance(optimizer, _DistributedAdasumOptimizer):
        return f"{name} writes them before their Adasum"
    if not isinstance(optimizer, _DistributedOptimizer) or optimizer._reducer is None:
        if not ddp:
            return f"{name} is not a DistributedOptimizer"
    elif optimizer.process_set is not global_process_set:
        return f"{name} sums the gradients of a process set only"
    for of, model in models.items():
        if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
            return f"{of} is compiled by torch.jit"
    known = {id(weight) for model in models.values() for weight in model.parameters()}
    if any(id(weight) not in known for weight in _weights(optimizer)):
        return f"{name} has parameters that are not those of a model in the state"
    return ""


def sharded(models: Mapping[str, Any], optimizers: Mapping[str, Any]) -> str:
    """Return the name of a model or optimizer each rank of which has a part, or nothing."""
    for name, model in models.items():
        if any(hasattr(p, "placements") or hasattr(p, "_sharded_size") for p in model.parameters()):
            return name
    for name, optimizer in optimizers.items():
        if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__):
            return name
    return ""


def say(text: str) -> None:
    """Print a line on rank 0 of an elastic job."""
    if basics.elastic() and basics.is_initialized() and basics.rank() == 0:
        print(text, file=sys.stderr, flush=True)
