"""Counting how long a training waits for its data, in the loaders of torch, TensorFlow and Keras.

They have no hook for it, so the methods of their iterators are wrapped. An iterator without such a method
counts nothing. gorun.loading() counts any other loader.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gorun.counters import counters

# Reads an element of tf.data in a graph, where gorun.tensorflow is there to count it.
read_in_graph: Callable[[Callable[[Any], Any], Any], Any] | None = None


def count() -> None:
    """Count the time in the loaders of what the program has imported. A second call does nothing."""
    if "torch.utils.data" in sys.modules:
        count_torch()
    if "tensorflow" in sys.modules:
        count_tensorflow()


def _wrap(cls: Any, name: str, by: Callable[[Callable[..., Any]], Any]) -> None:
    following = getattr(cls, name, None)
    if following is not None and not hasattr(following, "_gorun"):
        wrapped = functools.wraps(following)(by(following))
        wrapped._gorun = True
        setattr(cls, name, wrapped)


def _timed(following: Callable[[Any], Any]) -> Any:
    def timed(self: Any) -> Any:
        began = counters.loads()
        try:
            return following(self)
        except (EOFError, OSError, RuntimeError) as error:
            if killed := _killed(self):
                raise RuntimeError(killed) from error
            raise
        finally:
            counters.loaded(began)

    return timed


def _killed(iterator: Any) -> str:
    """Name a worker of a DataLoader that a signal has killed, "" for none: errors tell what its end breaks.

    Its connections break before it has ended, so this waits a moment, in which torch may raise an error.
    """
    workers = getattr(iterator, "_workers", None) or ()
    for wait in (0, 0.02, 0.2) if workers else ():
        time.sleep(wait)
        for number, worker in enumerate(workers):
            if (worker.exitcode or 0) < 0:
                name = f"worker {number} (process {worker.pid}) of the data loader"
                return f"{name} was killed by signal {-worker.exitcode}"
    return ""


def count_torch() -> None:
    """Count the time in every DataLoader of this process, however it is iterated."""
    from torch.utils.data import dataloader

    iterators = getattr(dataloader, "_BaseDataLoaderIter", None)
    _wrap(iterators, "__next__", _timed)
    if hasattr(iterators, "next"):  # torch 1.x had both
        _wrap(iterators, "next", _timed)


def count_tensorflow() -> None:
    """Count the time in every iterator of tf.data of this process, in graphs by gorun.tensorflow."""
    import tensorflow as tf
    from tensorflow.python.data.ops import iterator_ops

    def counted(following: Callable[[Any], Any]) -> Any:
        timed = _timed(following)

        def by_mode(self: Any) -> Any:
            if tf.executing_eagerly():
                return timed(self)
            return read_in_graph(following, self) if read_in_graph else following(self)

        return by_mode

    for name in ("_next_internal", "get_next_as_optional"):
        _wrap(getattr(iterator_ops, "OwnedIterator", None), name, counted)


def count_keras() -> None:
    """Count how long fit() of Keras 3 waits for batches that Python hands over, as on JAX."""
    from keras.src.trainers import epoch_iterator

    def counted(following: Callable[[Any], Any]) -> Any:
        def enumerated(self: Any) -> Iterator[Any]:
            for begin, end, iterator in following(self):
                yield begin, end, counters.loading(iterator)

        return enumerated

    def counted_whole(following: Callable[[Any], Any]) -> Any:
        return lambda self: counters.loading(following(self))

    iterators = getattr(epoch_iterator, "EpochIterator", None)
    if hasattr(iterators, "_enumerate_iterator"):
        _wrap(iterators, "_enumerate_iterator", counted)
    else:  # Keras 3.6 and before
        _wrap(iterators, "enumerate_epoch", counted_whole)
