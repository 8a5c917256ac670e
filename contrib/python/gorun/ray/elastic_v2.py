"""Parameters of elastic jobs in Ray."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gorun.ray.adapter import Adapter, BaseParams


@dataclasses.dataclass
class ElasticParams(BaseParams):
    """What an elastic job needs."""

    min_workers: int = 1
    max_workers: int | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[int] | None = None
    elastic_timeout: int = 600
    override_discovery: bool = True

    @property
    def elastic(self) -> bool:
        """Return True."""
        return True

    @property
    def adapter(self) -> type[Adapter]:
        """Raise an error: gorun has no elastic jobs in Ray yet."""
        raise NotImplementedError("min_workers: gorun has no elastic jobs in Ray yet: use num_workers")


ElasticAdapter = Adapter
