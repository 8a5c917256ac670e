"""A sampler that distributes the rest of an epoch over the present ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from gorun import basics


class ElasticSampler(torch.utils.data.Sampler):
    """Call record_batch() after each batch, set_epoch() after each epoch, and keep it in a TorchState.

    Every rank gets as many samples as the others; where they do not divide evenly, some come twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch, with all samples in another order."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that all ranks have processed a batch of this size; the batch number is ignored."""
        self._record(batch_size)

    def record_indices(self, indices: list[int]) -> None:
        """Note that each rank has processed this many samples."""
        self._record(len(indices))

    def _record(self, samples: int) -> None:
        # The last batch may be smaller, and the last samples may have come twice.
        self.processed_num = min(self.processed_num + samples * self.num_replicas, len(self.dataset))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return the samples of one of this rank's batches."""
        start = batch_idx * batch_size
        return self.indices[start : start + batch_size]

    def state_dict(self) -> dict[str, Any]:
        """Return the progress in the epoch."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from such a progress."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        if basics.is_initialized():  # otherwise between two worlds: the next one distributes
            self.reset()

    def reset(self) -> None:
        """Distribute the remaining samples over the present ranks."""
        self.num_replicas = basics.size()
        self.rank = basics.rank()
        everything = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(everything)
        self.remaining_indices = everything[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        padded = self.remaining_indices
        if padded:
            padded = (padded * math.ceil(self.total_size / len(padded)))[: self.total_size]
        self.indices = padded[self.rank :: self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
