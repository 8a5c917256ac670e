"""What TensorFlow raises for operations that failed, as what scripts catch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import tensorflow as tf

from gorun import basics, errors
from gorun.constants import DECLARED
from gorun.exceptions import HorovodInternalError
from gorun.process_sets import UNREGISTERED, ProcessSet, global_process_set

_MARKS = ("gorun: ", "HorovodInternalError: ")  # of native operations, of those that Python runs

# The cause, by TensorFlow's error. It separates a mistake of the script from the loss of a rank.
_CAUSES: dict[type, type[errors.GorunError]] = {
    tf.errors.FailedPreconditionError: errors.Mismatch,
    tf.errors.InvalidArgumentError: errors.InvalidArgument,
    tf.errors.UnknownError: errors.Aborted,
}


class NoMember(tf.errors.InvalidArgumentError, ValueError):
    """This rank is not in the process set."""


@functools.cache
def _both(kind: type) -> type:
    return type(kind.__name__, (kind, HorovodInternalError), {"__module__": kind.__module__})


def ours(error: BaseException) -> bool:
    """Report whether an error comes from an operation between ranks."""
    return isinstance(error, tf.errors.OpError) and any(mark in error.message for mark in _MARKS)


def translated(error: tf.errors.OpError) -> HorovodInternalError:
    """Return a failed operation's error as one that is HorovodInternalError and TensorFlow's at once."""
    text = error.message
    for mark in _MARKS:
        text = text.partition(mark)[2] or text
    text = text.partition("\n")[0]
    kind = next((kind for kind in _CAUSES if isinstance(error, kind)), type(error))
    both = _both(kind)(error.node_def, error.op, text)
    both.__cause__ = _CAUSES.get(kind, errors.GorunError)(text)
    return both


@contextlib.contextmanager
def translate(process_set: ProcessSet = global_process_set) -> Iterator[None]:
    """Raise HorovodInternalError for operations of a process set that fail inside."""
    number = process_set.process_set_id
    if number and number < DECLARED and number not in basics.world().process_sets:  # a graph tells late
        raise ValueError(UNREGISTERED)
    if not process_set.included():
        raise NoMember(None, None, f"Rank {basics.rank()} is not a member of the provided process set.")
    try:
        yield
    except tf.errors.OpError as error:
        if isinstance(error, HorovodInternalError) or not ours(error):
            raise
        raise translated(error) from translated(error).__cause__
