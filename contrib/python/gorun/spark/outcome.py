"""What a task reports to the driver about its rank."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Sequence
from typing import Any

from gorun.exceptions import HorovodInternalError

try:
    from pyspark import cloudpickle as pickle  # takes what a driver's own script defines, as its functions do
except ImportError:
    import pickle  # type: ignore[no-redef]


@dataclasses.dataclass
class Outcome:
    """The result of a rank, or its error; and what went wrong with the job, as far as its task knows."""

    rank: int
    host: str
    result: Any = None
    error: str = ""  # the last lines of a traceback, "" without one
    text: str = ""  # the whole traceback
    consequence: bool = False  # the error is one of another rank's
    job: str = ""
    daemon: str = ""  # why the daemon of its host failed before the function began
    size: int = 0  # of the rank's last world; 0 if it had none


def failed(rank: int, host: str, error: BaseException, late: bool = False) -> Outcome:
    """Return the outcome of a function that raised an error; late: the job had ended by then."""
    consequence = late or isinstance(error, HorovodInternalError)
    return Outcome(rank, host, None, f"{type(error).__name__}: {error}", traceback.format_exc(), consequence)


def dump(outcome: Outcome) -> bytes:
    """Pickle an outcome. A result that cannot be pickled is an error of its rank."""
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        return pickle.dumps(failed(outcome.rank, outcome.host, error))


def results(outcomes: Sequence[Outcome]) -> list[Any]:
    """Return the results by rank; RuntimeError, with the cause, if any rank has none."""
    outcomes = sorted(outcomes, key=lambda outcome: outcome.rank)
    jobs = [outcome.daemon for outcome in outcomes if outcome.daemon]
    jobs += [outcome.job for outcome in outcomes if outcome.job]
    wrong = [outcome for outcome in outcomes if outcome.error]
    causes = [outcome for outcome in wrong if not outcome.consequence] or wrong
    if causes and causes[0].rank >= 0:
        first = causes[0]
        raise RuntimeError(f"run: rank {first.rank} on {first.host}: {first.error}\n{first.text}")
    if jobs or causes:
        raise RuntimeError(f"run: {(jobs or [causes[0].error])[0]}")
    return [outcome.result for outcome in outcomes]
