"""The collectives as TensorFlow operations of libgorun.

They run on the CPU, are differentiable, and return:

    allreduce(tensors, …) → tensors                      broadcast(tensors, …) → tensors
    allgather(tensors, …) → (tensors, rows by rank)      alltoall(tensor, splits, …) → (tensor, rows by rank)
    reducescatter(tensors, …) → tensors

An operation returns to TensorFlow at once and continues in gorun's daemon: any number may be in flight, in
any order.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gorun import basics, collectives, native
from gorun.exceptions import HorovodInternalError
from gorun.process_sets import ProcessSet, global_process_set

# What ask() can be asked. tensorflow.c knows the numbers of the first two as well.
RANK, SIZE, SET_RANK, INCLUDED, LOCAL_RANK, LOCAL_SIZE, JOINS = range(7)

_BY_COUNT = "#"  # the name of a native operation that ranks number

# Functions of the library in the order of struct engine in tensorflow.c.
_FUNCTIONS = (
    "gorun_start", "gorun_then", "gorun_wait", "gorun_release", "gorun_alloc_raw", "gorun_free",
    "gorun_error",
)  # fmt: skip


def set_of(number: int) -> ProcessSet:
    """Return a process set for its number."""
    if number == 0:
        return global_process_set
    found = ProcessSet(basics.world().process_sets[number])
    found.process_set_id = number
    return found


def facts(process_set: ProcessSet) -> dict[int, int]:
    """Return what an operation may ask about a process set, and about the world."""
    session = basics.world().session
    answers = {RANK: session.rank, LOCAL_RANK: session.local_rank, LOCAL_SIZE: session.local_size}
    answers[SIZE] = process_set.size()
    answers[INCLUDED] = int(process_set.included())
    answers[SET_RANK] = process_set.rank() if process_set.included() else -1
    return answers


class Native:
    """Operations of libgorun."""

    def __init__(self, operations: Any, library: Any) -> None:
        self._operations = operations
        self._library = library
        self._known: dict[int, ProcessSet] = {}

    def enter(self, engine: Any) -> None:
        """Begin a world, in which the session is another library's: the one that Python loaded."""
        table = (ctypes.c_void_p * len(_FUNCTIONS))(
            *(ctypes.cast(getattr(engine, name), ctypes.c_void_p).value for name in _FUNCTIONS)
        )
        self._library.gorun_tensorflow_engine(table)
        basics.world().on_join(self._joined)
        known, self._known = self._known, {}
        for process_set in (global_process_set, *known.values()):
            if process_set.process_set_id is not None and process_set.process_set_id >= 0:
                self._learn(process_set)

    def _joined(self, joins: int) -> None:
        self._library.gorun_tensorflow_fact(JOINS, 0, joins)

    def _learn(self, process_set: ProcessSet) -> None:
        number = process_set.process_set_id or 0
        known = self._known.get(number)
        if known is not None and (number == 0 or known.ranks == process_set.ranks):
            return
        for what, value in facts(process_set).items():
            self._library.gorun_tensorflow_fact(what, number, value)
        self._known[number] = process_set

    def ask(self, what: int, process_set: ProcessSet, name: str | None = None) -> Any:
        """Return a fact as a tensor; in a graph, the one when the graph runs."""
        self._learn(process_set)
        value = self._operations.gorun_world(
            what=what, process_set=process_set.process_set_id or 0, name=name
        )
        value.set_shape(())
        return value

    def count(self, event: int) -> Any:
        """Return an operation of a graph that counts an event whenever it runs."""
        return self._operations.gorun_count(what=event)

    def _common(self, name: str | None, scoped: bool, process_set: ProcessSet) -> dict[str, Any]:
        number = process_set.group()
        self._learn(process_set)
        # Eagerly, an operation has no node with a name of its own.
        own = (name or _BY_COUNT) if tf.executing_eagerly() else "" if scoped else name
        if tf.executing_eagerly():
            world = tf.constant(process_set.size())
        else:
            world = self._operations.gorun_world(what=SIZE, process_set=number)
        return {"world": world, "tensor_name": own or "", "process_set": number, "name": name}

    def allreduce(
        self, tensors: Sequence[Any], name: str | None, scoped: bool, process_set: ProcessSet, op: int,
        prescale: float, postscale: float,
    ) -> list[Any]:  # fmt: skip
        """Reduce tensors together."""
        return self._operations.gorun_allreduce(
            tensors, reduce_op=op, prescale_factor=prescale, postscale_factor=postscale,
            **self._common(name, scoped, process_set),
        )  # fmt: skip

    def allgather(
        self, tensors: Sequence[Any], name: str | None, scoped: bool, process_set: ProcessSet
    ) -> tuple[list[Any], list[Any]]:
        """Join each tensor with the other ranks'."""
        results, rows = self._operations.gorun_allgather(
            tensors, N=len(tensors), **self._common(name, scoped, process_set)
        )
        return [_same_row(result, tensor) for result, tensor in zip(results, tensors)], rows

    def broadcast(
        self, tensors: Sequence[Any], name: str | None, scoped: bool, process_set: ProcessSet, root: int
    ) -> list[Any]:
        """Return the root's tensors."""
        return self._operations.gorun_broadcast(
            tensors, root_rank=root, **self._common(name, scoped, process_set)
        )

    def alltoall(
        self, tensor: Any, splits: Any, name: str | None, scoped: bool, process_set: ProcessSet
    ) -> tuple[Any, Any]:
        """Send rows to each rank."""
        result, rows = self._operations.gorun_alltoall(
            tensor, splits, **self._common(name, scoped, process_set)
        )
        return _same_row(result, tensor), rows

    def reducescatter(
        self, tensors: Sequence[Any], name: str | None, scoped: bool, process_set: ProcessSet, op: int,
        prescale: float, postscale: float,
    ) -> list[Any]:  # fmt: skip
        """Reduce tensors and keep this rank's rows of each."""
        results = self._operations.gorun_reducescatter(
            tensors, reduce_op=op, prescale_factor=prescale, postscale_factor=postscale,
            **self._common(name, scoped, process_set),
        )  # fmt: skip
        return [_same_row(result, tensor) for result, tensor in zip(results, tensors)]


def _same_row(result: Any, like: Any) -> Any:
    """Set the shape of a result that differs from another in its first dimension only, and return it."""
    if not tf.executing_eagerly() and like.shape.rank:
        result.set_shape([None, *like.shape[1:]])
    return result


# Gradients.


def allgather_gradient(
    engine: Any, rows: Sequence[Any], grads: Sequence[Any], name: str | None, scoped: bool,
    process_set: ProcessSet,
) -> list[Any]:  # fmt: skip
    """Return this rank's rows of the average of what the ranks have for the joined tensors."""
    reduced = engine.allreduce(grads, name, scoped, process_set, collectives.Average, 1.0, 1.0)
    rank = engine.ask(SET_RANK, process_set)
    return [
        grad[tf.reduce_sum(counts[:rank]) : tf.reduce_sum(counts[: rank + 1])]
        for grad, counts in zip(reduced, rows)
    ]


def broadcast_gradient(
    engine: Any, grads: Sequence[Any], name: str | None, scoped: bool, process_set: ProcessSet, root: int
) -> list[Any]:
    """Return the average of the ranks' gradients on the root, zeros elsewhere."""
    reduced = engine.allreduce(grads, name, scoped, process_set, collectives.Average, 1.0, 1.0)
    is_root = tf.equal(engine.ask(RANK, process_set), root)
    return [grad * tf.cast(is_root, grad.dtype) for grad in reduced]


def alltoall_gradient(
    engine: Any, tensor: Any, rows: Any, grad: Any, name: str | None, scoped: bool, process_set: ProcessSet
) -> Any:
    """Return the gradient's rows to where they came from; rows that were not sent get zeros."""
    returned, _ = engine.alltoall(grad, rows, name, scoped, process_set)
    missing = tf.shape(tensor)[0] - tf.shape(returned)[0]
    pads = tf.concat([[[0, missing]], tf.zeros([tf.rank(tensor) - 1, 2], tf.int32)], 0)
    result = tf.pad(returned, pads)
    if not tf.executing_eagerly():
        result.set_shape(tensor.shape)
    return result


def reducescatter_gradient(
    engine: Any, grads: Sequence[Any], name: str | None, scoped: bool, process_set: ProcessSet, op: int,
    factor: float,
) -> list[Any]:  # fmt: skip
    """Return the rows of all ranks."""
    if op == collectives.Sum:
        size = engine.ask(SIZE, process_set)
        grads = [grad * tf.cast(size, grad.dtype) for grad in grads]
    if factor != 1.0:
        grads = [grad * tf.cast(factor, grad.dtype) for grad in grads]
    return engine.allgather(grads, name, scoped, process_set)[0]


def _register_gradients(engine: Native) -> None:
    """Register the gradients of the native operations. A world is not differentiable."""

    def arguments(op: Any) -> tuple[str | None, bool, ProcessSet]:
        own = op.get_attr("tensor_name").decode()
        process_set = set_of(op.get_attr("process_set"))
        return (None if own in ("", _BY_COUNT) else f"{own}_grad"), not own, process_set

    @tf.RegisterGradient("GorunAllreduce")
    def _allreduce(op: Any, *grads: Any) -> list[Any]:
        how = op.get_attr("reduce_op"), op.get_attr("prescale_factor"), op.get_attr("postscale_factor")
        return [*engine.allreduce(grads, *arguments(op), *how), None]

    @tf.RegisterGradient("GorunAllgather")
    def _allgather(op: Any, *grads: Any) -> list[Any]:
        count = op.get_attr("N")
        return [*allgather_gradient(engine, op.outputs[count:], grads[:count], *arguments(op)), None]

    @tf.RegisterGradient("GorunBroadcast")
    def _broadcast(op: Any, *grads: Any) -> list[Any]:
        return [*broadcast_gradient(engine, grads, *arguments(op), op.get_attr("root_rank")), None]

    @tf.RegisterGradient("GorunAlltoall")
    def _alltoall(op: Any, grad: Any, _: Any) -> list[Any]:
        return [alltoall_gradient(engine, op.inputs[0], op.outputs[1], grad, *arguments(op)), None, None]

    @tf.RegisterGradient("GorunReducescatter")
    def _reducescatter(op: Any, *grads: Any) -> list[Any]:
        factor = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
        how = op.get_attr("reduce_op"), factor
        return [*reducescatter_gradient(engine, grads, *arguments(op), *how), None]

    tf.no_gradient("GorunWorld")


@functools.cache
def _native() -> Native:
    """Load the operations, once."""
    # A copy: TensorFlow takes operations only of a library that was not loaded before.
    path = native.copied()
    os.environ["_GORUN_TENSORFLOW"] = "1"  # has the library register them
    try:
        operations = tf.load_op_library(path)
    except (OSError, RuntimeError, tf.errors.OpError) as error:
        raise HorovodInternalError(f"load gorun's operations of TensorFlow: {error}") from error
    finally:
        del os.environ["_GORUN_TENSORFLOW"]
    if not hasattr(operations, "gorun_world"):
        raise HorovodInternalError("this TensorFlow lacks functions that gorun's operations need")
    engine = Native(operations, ctypes.CDLL(path))
    _register_gradients(engine)
    return engine


class _State:
    session: Any = None  # of the world that the engine is for


_state = _State()


def current() -> Native:
    """Return the engine of the present world."""
    session = basics.world().session
    engine = _native()
    if _state.session is not session:
        engine.enter(native.attach())
        _state.session = session
    return engine
