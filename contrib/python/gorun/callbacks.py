"""Logs where the time of a rank goes to TensorBoard, Weights & Biases and the like, in one line.

    from gorun.callbacks import log_split

    log_split(writer, step)   # torch.utils.tensorboard.SummaryWriter, tensorboardX, or tf.summary
    log_split(wandb, step)    # or a run of it, or mlflow

The module imports none of them: it only calls the methods of what you pass. Each call logs the time since the
previous one.
"""

from __future__ import annotations

from typing import Any

from gorun.counters import Counters, counters

_PARTS = ("data", "communication", "others")


class Split:
    """What a rank has counted since the last look."""

    def __init__(self, source: Counters = counters) -> None:
        self._source = source
        self._last = dict.fromkeys(source.totals(), 0)

    def take(self) -> dict[str, float]:
        """Return where the time since the last call went, as shares from 0 to 1, and seconds of a step.

        It is empty if no time was counted, as outside of gorun's jobs before the first step.
        """
        now = self._source.totals()
        since = {name: max(value - self._last[name], 0) for name, value in now.items()}
        if not since["elapsed"]:
            return {}
        self._last = now
        shares = {name: min(since[name] / since["elapsed"], 1.0) for name in _PARTS}
        values = {
            "computing": max(1.0 - sum(shares.values()), 0.0),
            **shares,
            "hidden": since["hidden"] / since["elapsed"],
        }
        if since["steps"]:
            values["step_seconds"] = since["elapsed"] / since["steps"] / 1e9
        return values


_split = Split()


def log_split(to: Any, step: int | None = None, prefix: str = "gorun/") -> dict[str, float]:
    """Log where the time of this rank went since the last call, and return it.

    ``to`` has one of the methods ``add_scalar(name, value, step)``, ``log(values, step=step)``,
    ``log_metrics(values, step=step)`` or ``scalar(name, value, step=step)``.
    """
    values = {prefix + name: value for name, value in _split.take().items()}
    if not values:
        return values
    if hasattr(to, "add_scalar"):  # SummaryWriter
        for name, value in values.items():
            to.add_scalar(name, value, step)
    elif hasattr(to, "log_metrics"):  # mlflow, loggers of Lightning
        to.log_metrics(values, step=step)
    elif hasattr(to, "log"):  # wandb and its runs
        to.log(values, step=step)
    elif hasattr(to, "scalar"):  # tf.summary
        for name, value in values.items():
            to.scalar(name, value, step=step)
    else:
        raise TypeError(f"log_split: {type(to).__name__} has none of add_scalar, log, log_metrics and scalar")
    return values
