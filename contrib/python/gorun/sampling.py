"""Gives each sample of an epoch to exactly one rank, whatever worlds the epoch is trained in.

The order of the samples is a function of seed and epoch alone, computed for each place by itself: a
permutation without a list. In a step the ranks divide the samples from one position in that order on. The
position counts what was trained, not what a loader has fetched, and is all that another world needs to go
on.

The last step of an epoch has fewer samples, and no rank repeats one to fill up. So ranks have unequal
numbers of samples then, and weight() makes the averaged gradient that of the whole batch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence, Sized
from typing import Any

from gorun import basics

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

__all__ = ["ExactSampler", "Permutation", "divide"]

_MASK = (1 << 64) - 1
_ROUNDS = 8


class Permutation:
    """A random order of range(n), a function of the key alone. It takes no memory.

    It is a Feistel network over rows and columns: n places fill a rectangle but for less than a row, and
    what is permuted into the rest is permuted again.
    """

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self._rows = max(1, math.isqrt(n))
        self._columns = max(1, -(-n // self._rows))
        self._keys = [_mix(_mix(key & _MASK) + round) for round in range(_ROUNDS)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, place: int) -> int:
        place = self._permuted(range(self.n)[place])
        while place >= self.n:
            place = self._permuted(place)
        return place

    def between(self, start: int, stop: int) -> Any:
        """Return what is at some places: an array, or a list where there is no NumPy."""
        if numpy is None:
            return [self[place] for place in range(start, stop)]
        places = self._permuted(numpy.arange(start, stop, dtype=numpy.uint64))
        while (outside := places >= self.n).any():
            places[outside] = self._permuted(places[outside])
        return places.astype(numpy.int64)

    def _permuted(self, place: Any) -> Any:
        row, column = place // self._columns, place % self._columns
        for i, key in enumerate(self._keys):
            if i % 2:
                row = (row + _mix(column + key) % self._rows) % self._rows
            else:
                column = (column + _mix(row + key) % self._columns) % self._columns
        return row * self._columns + column


def _mix(x: Any) -> Any:
    """Return 64 bits each of which depends on each of x: the end of SplitMix64."""
    x = x & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def divide(samples: int, rank: int, size: int) -> tuple[int, int]:
    """Return the places of a rank's part of so many samples: parts are as equal as possible."""
    each, more = divmod(samples, size)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)


class ExactSampler:
    """ExactSampler(len(dataset), batch_size=32): batches of indices, each index in one batch of one rank.

    Pass it to a DataLoader as batch_sampler=, and to a TorchState. Multiply the loss by weight(), and call
    advance() after each step:

        while state.sampler.epoch < epochs:
            for images, labels in loader:
                (criterion(model(images), labels) * state.sampler.weight()).backward()
                optimizer.step()
                state.sampler.advance()
            state.sampler.next_epoch()

    An iterator yields batches from the position on, for the world that there is when it begins. Each rank
    has the same number of them. batch_size is that of one rank; a rank that has no sample in the last batch
    gets one with weight 0.

    With keep_batch (by default with gorun --on-loss keep-batch) every step has the samples of a step of the
    first world. In a smaller one each rank trains several batches for a step, and its gradients add up:

        for images, labels in loader:
            (criterion(model(images), labels) * state.sampler.weight()).backward()
            if state.sampler.completes():
                optimizer.step()
                optimizer.zero_grad()
            state.sampler.advance()
    """

    def __init__(
        self, dataset: Sized | int, batch_size: int, shuffle: bool = True, seed: int = 0,
        keep_batch: bool | None = None,
    ) -> None:  # fmt: skip
        if keep_batch is None:
            keep_batch = os.environ.get("GORUN_ON_LOSS") == "keep-batch"
        self._ranks = basics.size() if keep_batch else 0  # whose batches are a step; 0 for those of the world
        self._part = 0  # of the batches of this rank's step, the one at hand
        self.samples = dataset if isinstance(dataset, int) else len(dataset)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.position = 0  # samples of the epoch that were trained, by all ranks
        self._repeated = (-1, -1, 0)  # an epoch and a position, and the size of the world that trained there

    def __len__(self) -> int:
        """Return the number of batches that are left in this epoch."""
        now = self._left(self.position)  # the others are as large as this world makes them
        return (bool(now) - (self.position + now - self.samples) // self._whole()) * self.passes - self._part

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches():
            yield [int(index) for index in batch]

    def batches(self) -> Iterator[Any]:
        """Yield this rank's batches as arrays, for loaders other than torch's."""
        order = self._order()
        position, part = self.position, self._part
        while position < self.samples:
            first, last = self._places(position, part)
            if first == last:  # a rank takes part in every step
                first, last = position, position + 1
            part += 1
            if part == self.passes:
                position, part = position + self._left(position), 0
            yield order.between(first, last) if isinstance(order, Permutation) else order[first:last]

    def indices(self) -> Sequence[int]:
        """Return this rank's samples from the position on, for loaders that batch by themselves.

        They do not go with a TorchState, which may leave the first batch of a world to a former one.
        """
        if self._ranks:
            raise ValueError("loaders that batch by themselves cannot keep the batch of a step")
        return _Indices(self)

    @property
    def keeps_batch(self) -> bool:
        """Report whether a step has as many samples as in the first world."""
        return self._ranks > 0

    @property
    def passes(self) -> int:
        """The number of batches that each rank trains for a step."""
        return -(-self._whole() // (self.batch_size * basics.size()))

    @property
    def amid_step(self) -> bool:
        """Report whether this rank has trained some of the batches of a step, and not all."""
        return self._part > 0

    def completes(self) -> bool:
        """Report whether the batch at hand is the last that this rank trains for the step."""
        return self._part + 1 == self.passes

    def weight(self) -> float:
        """Return the factor for the loss, a mean over this rank's batch, of the batch at the position."""
        first, last = self._places(self.position, self._part)
        whole = min(self._whole(), self._left(self.position))
        return (last - first) * basics.size() / max(whole, 1)

    def advance(self) -> None:
        """Note that all ranks have trained a batch."""
        self._part = (self._part + 1) % self.passes
        if not self._part:
            self.position += self._left(self.position)

    def repeat(self, size: int) -> None:
        """Note that a world of so many ranks has trained the batch at the position, or none for 0.

        A script that trains the batch once more then leaves behind what that world has trained.
        """
        self._repeated = (self.epoch, self.position, size)

    def next_epoch(self) -> None:
        """Begin the next epoch, with all samples in another order."""
        if self.position >= self.samples and self._repeats(self.position):  # that world had begun the epoch
            self._repeated = (self.epoch + 1, 0, self._repeated[2])
        self.epoch += 1
        self.position = self._part = 0

    def state_dict(self) -> dict[str, int]:
        """Return the progress. A step that has begun begins again."""
        return {"epoch": self.epoch, "position": self.position, "ranks": self._ranks}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from such a progress."""
        self.epoch, self.position = state["epoch"], state["position"]
        self._ranks, self._part = state.get("ranks", self._ranks), 0
        self.repeat(0)

    def reset(self) -> None:
        """Adapt to another world, in which the step begins again. Each iterator does when it begins."""
        self._part = 0

    def _order(self) -> Sequence[int] | Permutation:
        if not self.shuffle:
            return range(self.samples)
        return Permutation(self.samples, (self.seed << 32) + self.epoch)

    def _whole(self) -> int:
        return self.batch_size * (self._ranks or basics.size())

    def _repeats(self, position: int) -> bool:
        return self._repeated[2] > 0 and self._repeated[:2] == (self.epoch, position) and not self._ranks

    def _left(self, position: int) -> int:
        whole = self.batch_size * self._repeated[2] if self._repeats(position) else self._whole()
        return min(whole, self.samples - position)

    def _places(self, position: int, part: int) -> tuple[int, int]:
        """Return which samples this rank has in a part of the step at a position."""
        first, last = divide(min(self._whole(), self._left(position)), basics.rank(), basics.size())
        start, stop = divide(last - first, part, self.passes)
        return position + first + start, position + first + stop


class _Indices(Sequence[int]):
    """The samples of one rank, computed one by one; batch_size of them are a batch."""

    def __init__(self, sampler: ExactSampler) -> None:
        self._order, self._size, self._each = sampler._order(), basics.size(), sampler.batch_size
        self._start = sampler.position
        full, rest = divmod(sampler.samples - sampler.position, sampler._whole())
        self._last = divide(rest, basics.rank(), self._size)
        self._rank, self._full = basics.rank(), full * self._each

    def __len__(self) -> int:
        return self._full + self._last[1] - self._last[0]

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        batch, place = divmod(range(len(self))[i], self._each)
        first = self._rank * self._each if batch * self._each < self._full else self._last[0]
        return self._order[self._start + batch * self._each * self._size + first + place]
