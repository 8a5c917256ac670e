"""What a rank reports to the driver, as marked and sealed lines of its output."""

from __future__ import annotations

import dataclasses
import traceback
from typing import Any, TextIO

from pyspark import cloudpickle  # takes what a driver's own script defines, as its functions do

from gorun import sealed
from gorun.exceptions import HorovodInternalError


@dataclasses.dataclass
class Outcome:
    """The result of a rank, or its error."""

    rank: int
    host: str
    result: Any = None
    error: str = ""  # the last lines of a traceback, "" without one
    text: str = ""  # the whole traceback
    consequence: bool = False  # the error is one of another rank's
    size: int = 0  # of the rank's last world; 0 if it had none


def failed(rank: int, host: str, error: BaseException) -> Outcome:
    """Return the outcome of a function that raised an error."""
    text = f"{type(error).__name__}: {error}"
    return Outcome(rank, host, None, text, traceback.format_exc(), isinstance(error, HorovodInternalError))


def dump(outcome: Outcome) -> bytes:
    """Pickle an outcome. A result that cannot be pickled is an error of its rank."""
    try:
        return cloudpickle.dumps(outcome)
    except Exception as error:
        return cloudpickle.dumps(failed(outcome.rank, outcome.host, error))


class Outcomes(sealed.Reader):
    """The outcomes of ranks, from their output."""

    def __init__(self, caller: str, key: str, output: TextIO) -> None:
        """caller: the function that messages name."""
        super().__init__(key, output)
        self._caller = caller

    def failure(self, job: str) -> RuntimeError:
        """Return why a job failed: the last error of a rank that is no consequence, and what gorun said.

        What gorun said comes first if all errors are consequences.
        """
        wrong = [found for found in self.found.values() if found.error]
        causes = [found for found in wrong if not found.consequence]
        if not wrong:
            return RuntimeError(f"{self._caller}: {job}")
        last = (causes or wrong)[-1]
        error = f"rank {last.rank} on {last.host}: {last.error}"
        parts = [error, job] if causes else [job, error]
        return RuntimeError(f"{self._caller}: {'; '.join(parts)}\n{last.text}")

    def results(self, size: int = 0) -> list[Any]:
        """Return the results by rank: of so many, or of the last world. RuntimeError if one is missing."""
        if self.broken:
            raise RuntimeError(
                f"{self._caller}: the output of a rank, or its result, cannot be taken: {self.broken!r}"
            ) from self.broken
        good = [found for found in self.found.values() if not found.error]
        if not good:
            raise RuntimeError(f"{self._caller}: the job has ended, and no rank has a result")
        if not size:
            size = good[-1].size  # a rank that ended in a world before has no part in the last one
            good = [found for found in good if found.size == size]
        by_rank = {found.rank: found.result for found in good}
        missing = sorted(set(range(size)) - set(by_rank))
        if missing:
            raise RuntimeError(
                f"{self._caller}: rank {missing[0]} of {size} has ended well, but without a result: "
                "does its function end the process?"
            )
        return [by_rank[number] for number in sorted(by_rank)]
