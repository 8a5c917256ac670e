"""Elastic training with torch: state, sampler, and the decorator of the training function."""

from __future__ import annotations

from typing import Any, Callable

from gorun import basics
from gorun.elastic import ObjectState, State, run_fn
from gorun.torch.elastic.sampler import ElasticSampler
from gorun.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a State."""
    return run_fn(func, _reset)


def _reset() -> None:
    basics.shutdown()
    basics.init()
