"""Whether a state's values tell from which step to go on. A pure state machine: it sees copies of values.

A script promises only at commit() that its weights and its state's values belong together. To go back to the
beginning of any step instead, the values must name the step there too, and the script must begin with the
step that they name. Evidence looks for that in what the script does. It finds:

- values that are the same in one step as in the next: the script cannot find its place with them;
- values that have changed between the script's start and its first step: a script that counts a step before
  it computes it would leave one out;
- commits between which only values changed that change with every step. Then the script goes on from such
  values alone, and so from those of any step. A script that commits at the end of each epoch gives no such
  evidence: the number of the epoch has changed as well, or the commit is not in the loop that makes steps.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

SAME = "the values of the state are the same in one step as in the next"
PLACELESS = "no whole number or sampler changes with a step, but only {}"
EARLY = "the script changes {} before the first forward pass"


class Evidence:
    """What a script has shown of how it uses its state's values."""

    def __init__(self, places: frozenset[str], others: frozenset[str]) -> None:
        """places: names of samplers. others: names of what tells no place, whatever it holds."""
        self.proven = False
        self.against = ""  # why the values do not tell the step
        self._places, self._others = places, others
        self._last: Mapping[str, Any] = {}  # of the last step
        self._stepping: set[str] | None = None  # values that changed with every step
        self.moved: frozenset[str] = frozenset()  # values that changed with any step
        self._committed: Mapping[str, Any] = {}

    def started(self, values: Mapping[str, Any]) -> None:
        """Note with which values the script starts, or starts again."""
        self._last = self._committed = values
        self._stepping = None

    def first(self, values: Mapping[str, Any]) -> set[str]:
        """Note the values of the first step after a start. Return which of them steps change, but early."""
        early = differing(self._last, values)
        if early:
            self._object(EARLY.format(" and ".join(sorted(early))))
        return early & self.moved

    def began(self, values: Mapping[str, Any]) -> None:
        """Note the values of a further step."""
        changed = differing(self._last, values)
        if not self._placed(changed, self._last, values):
            only = " and ".join(sorted(changed - self._others))
            self._object(PLACELESS.format(only) if only else SAME)
        self._stepping = changed if self._stepping is None else self._stepping & changed
        self.moved |= changed
        self._last = values

    def committed(self, values: Mapping[str, Any], inside: bool) -> None:
        """Note the values of a commit, and whether it is inside of the loop that makes the steps."""
        changed = differing(self._committed, values)
        if self._stepping and changed <= self._stepping and self._placed(changed, self._committed, values):
            if inside or changed & self._places:  # a loop over a sampler can begin at any of its places
                self.proven = not self.against
        self._committed = values

    def _placed(self, changed: set[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        counting = changed - self._others - self._places
        return bool(changed & self._places) or any(_counted(before.get(n), after.get(n)) for n in counting)

    def _object(self, against: str) -> None:
        self.against = self.against or against
        self.proven = False


def _counted(before: Any, after: Any) -> bool:
    """Report whether a whole number has changed, which the value is or holds."""
    if isinstance(after, dict):
        return isinstance(before, dict) and any(_counted(before.get(key), after[key]) for key in after)
    if isinstance(after, (list, tuple)):
        return isinstance(before, (list, tuple)) and any(map(_counted, before, after))
    return isinstance(after, numbers.Integral) and not isinstance(after, bool) and not same(before, after)


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Return the names of the values that differ."""
    return {name for name in {*before, *after} if not same(before.get(name), after.get(name))}


def same(a: Any, b: Any) -> bool:
    """Report whether a value equals a copy of it made earlier. When in doubt it does not."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    try:
        if hasattr(a, "shape"):
            return bool(a.shape == b.shape and (a == b).all())
        if type(a).__eq__ is object.__eq__ and hasattr(a, "__dict__"):
            return same(vars(a), vars(b))
        return bool(a == b)
    except Exception:  # a comparison of the script's own
        return False
