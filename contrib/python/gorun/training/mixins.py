"""The callbacks of training, for any Keras: each becomes one beside keras.callbacks.Callback."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import numpy as np

from gorun import basics
from gorun.training import models


def _rate(optimizer: Any) -> float:
    return float(np.asarray(models.read(_variable(optimizer))))


def _variable(optimizer: Any) -> Any:
    """Return the variable of the learning rate."""
    optimizer = models.stepping(optimizer)
    for name in ("_learning_rate", "learning_rate", "lr"):
        value = getattr(optimizer, name, None)
        if value is not None:
            if not hasattr(value, "assign"):
                raise ValueError("the learning rate is a schedule of the optimizer's own")
            return value
    raise ValueError(f"{type(optimizer).__name__} has no learning rate")


class BroadcastGlobalVariables:
    """Overwrites all variables with the root's, before the first step or right after it."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local: list[Any] = []
        if local_variables is None:
            local_variables = []
        elif not isinstance(local_variables, Iterable) or hasattr(local_variables, "assign"):
            local_variables = [local_variables]
        for variable in local_variables:
            if not hasattr(variable, "assign"):
                raise ValueError("All local variables must be of tf.Variable type.")
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leave a variable to each rank."""
        self._local.append(var)

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast, if the model has all its variables already."""
        if getattr(self.model.optimizer, "built", False) and self.model.built:  # type: ignore[attr-defined]
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast, if the model got its variables in the first step."""
        self._broadcast()

    on_batch_end = on_train_batch_end

    def _broadcast(self) -> None:
        if self.broadcast_done:
            return
        model: Any = self.model  # type: ignore[attr-defined]
        models.settled(model)
        local = {id(variable) for variable in self._local}
        there = {id(v): v for v in [*model.variables, *models.optimizer_variables(model.optimizer)]}
        models.broadcast([v for number, v in there.items() if number not in local], self.root_rank)
        self.broadcast_done = True


class MetricAverage:
    """Averages the metrics of an epoch over the ranks, for the callbacks behind it in the list."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replace the metrics by their averages."""
        if not logs or basics.size() == 1:
            return
        import gorun.numpy as hvd

        names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
        averages = hvd.allreduce(np.array([float(logs[name]) for name in names], np.float64))
        for name, value in zip(names, averages):
            logs[name] = float(value)


class LearningRateSchedule:
    """Sets the learning rate to initial_lr * multiplier from epoch to epoch, or from batch to batch."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.restore_momentum: float | None = None
        self.multiplier = multiplier if callable(multiplier) else self._decay(multiplier)

    def _decay(self, factor: float) -> Callable[[float], float]:
        return lambda epoch: factor ** (epoch - self.start_epoch)

    def on_train_begin(self, logs: Any = None) -> None:
        """Find the number of batches of an epoch."""
        if not self.staircase and not self.steps_per_epoch:
            steps = self.params.get("steps")  # type: ignore[attr-defined]
            if not steps:
                raise ValueError(
                    "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch "
                    f"parameter to the {type(self).__name__}()."
                )
            self.steps_per_epoch = steps

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the learning rate."""
        ended = self.end_epoch is not None and self.current_epoch >= self.end_epoch
        if self.current_epoch < self.start_epoch or ended:
            return
        if self.staircase and batch == 0:
            self._adjust(self.current_epoch)
        elif not self.staircase:
            self._adjust(self.current_epoch + batch / (self.steps_per_epoch or 1))

    def _adjust(self, epoch: float) -> None:
        model: Any = self.model  # type: ignore[attr-defined]
        models.settled(model)
        optimizer = models.stepping(model.optimizer)
        before, rate = _rate(optimizer), self.initial_lr * self.multiplier(epoch)
        models.write(_variable(optimizer), rate)
        momentum = getattr(optimizer, "momentum", None)
        # Of most optimizers momentum is a number that compiled steps do not look at again.
        if self.momentum_correction and hasattr(momentum, "assign") and before:
            self.restore_momentum = float(models.read(momentum))
            models.write(momentum, self.restore_momentum * rate / before)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Set the momentum back."""
        if self.restore_momentum:
            optimizer = models.stepping(self.model.optimizer)  # type: ignore[attr-defined]
            models.write(optimizer.momentum, self.restore_momentum)
            self.restore_momentum = None

    on_batch_begin = on_train_batch_begin
    on_batch_end = on_train_batch_end

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the learning rate in the metrics."""
        if logs is not None:
            models.settled(self.model)  # type: ignore[attr-defined]
            logs["lr"] = _rate(self.model.optimizer)  # type: ignore[attr-defined]


class LearningRateWarmup(LearningRateSchedule):
    """Raises the learning rate from initial_lr / size() to initial_lr in the first epochs."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / (self.steps_per_epoch or 1)  # round numbers at the end of each epoch
            return 1.0 / basics.size() * (epoch * (basics.size() - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr, multiplier, 0, warmup_epochs, staircase=False,
            momentum_correction=momentum_correction, steps_per_epoch=steps_per_epoch,
        )  # fmt: skip
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Note the learning rate in the metrics, and say so after the last epoch."""
        super().on_epoch_end(epoch, logs)
        if epoch == (self.end_epoch or 0) - 1 and self.verbose > 0 and basics.rank() == 0:
            rate = _rate(self.model.optimizer)  # type: ignore[attr-defined]
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BestModel:
    """ModelCheckpoint of the best model; its filepath is set later."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        ending = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(  # type: ignore[call-arg]
            f"best{ending}", monitor=monitor, verbose=verbose, save_best_only=True,
            save_weights_only=save_weights_only, mode=mode, save_freq=save_freq,
        )  # fmt: skip
        self.filepath = None


class CommitState:
    """Commits a state after so many batches, and after each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Count from the beginning, on all ranks alike."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit after the last of so many batches."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()
            self.batches_remaining = self.batches_per_commit

    on_batch_end = on_train_batch_end

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit."""
        self.commit()

    def commit(self) -> None:
        """Commit the state."""
        self.state.commit()


class UpdateBatchState:
    """Keeps the number of the batch in state.batch, 0 between epochs."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Forget the length of an epoch."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Shorten the first epoch in a new world by the batches that were done before."""
        params: dict[str, Any] = self.params  # type: ignore[attr-defined]
        if params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = params["steps"]
            params["steps"] = (self.steps_per_epoch or 0) - self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the batch."""
        self.state.batch = batch

    on_batch_end = on_train_batch_end

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Begin anew."""
        self.state.batch = 0


class UpdateEpochState:
    """Keeps the number of epochs done in state.epoch, over all worlds."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Count from the epochs of the worlds before."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count."""
        self.state.epoch = self.initial_epoch + epoch + 1
