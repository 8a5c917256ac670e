"""Elastic training with torch: state, sampler, and the decorator of the training function."""

from __future__ import annotations

from gorun.basics import init, shutdown
from gorun.elastic import ObjectState, State, run, run_fn
from gorun.sampling import ExactSampler
from gorun.torch.elastic import sampler, state
from gorun.torch.elastic.sampler import ElasticSampler
from gorun.torch.elastic.state import TorchState

__all__ = [
    "ElasticSampler", "ExactSampler", "ObjectState", "State", "TorchState", "init", "run", "run_fn",
    "sampler", "shutdown", "state",
]  # fmt: skip
