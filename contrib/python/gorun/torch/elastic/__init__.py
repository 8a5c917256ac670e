"""Elastic training with torch: state, sampler, and the decorator of the training function."""

from __future__ import annotations

from gorun.elastic import ObjectState, State, run
from gorun.torch.elastic.sampler import ElasticSampler
from gorun.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
