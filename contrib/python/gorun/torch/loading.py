"""Counting how long a training waits for its data loaders."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import dataloader

from gorun.counters import counters


def count() -> None:
    """Count the time in every DataLoader of this process, however it is iterated.

    A second call does nothing. torch has no hook for it, so the method of the iterators is wrapped. A torch
    without that method counts nothing.
    """
    iterators = getattr(dataloader, "_BaseDataLoaderIter", None)
    following = getattr(iterators, "__next__", None)
    if iterators is None or following is None or hasattr(following, "__wrapped__"):
        return

    @functools.wraps(following)
    def counted(self: Any) -> Any:
        began = counters.loads()
        try:
            return following(self)
        finally:
            counters.loaded(began)

    iterators.__next__ = counted
    if getattr(iterators, "next", None) is following:  # torch 1.x had both
        iterators.next = counted
