"""The table of operations: what every front end offers, its signatures, defaults and documentation.

gorun.numpy and gorun.torch.mpi_ops each subclass Operations and export the methods of one instance. A front
end defines by itself what it does differently, such as gradients and compression in PyTorch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

from gorun import collectives
from gorun.basics import world
from gorun.bindings import Binding
from gorun.collectives import ENDED, Average, choose_op, first
from gorun.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from typing import ParamSpec

    Given = ParamSpec("Given")
Tensor = TypeVar("Tensor")


def _waiting(start: Callable[Given, int], returns: str, text: str) -> Callable[Given, Any]:
    """Return the method that starts an operation and waits for it; it has this result and documentation."""

    @functools.wraps(start)
    def method(self: Operations[Any], *args: Any, **kwargs: Any) -> Any:
        return self.synchronize(start(self, *args, **kwargs))  # type: ignore[call-arg, arg-type]

    method.__name__ = start.__name__.replace("_async", "")
    method.__qualname__, method.__doc__ = f"Operations.{method.__name__}", text
    method.__signature__ = inspect.signature(start).replace(return_annotation=returns)  # type: ignore[attr-defined]
    return method


class Operations(Generic[Tensor]):
    """The operations of a front end. Names with a trailing underscore overwrite their argument."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    # What subclasses decide.

    def convert(self, tensor: Any) -> Tensor:
        """Return a tensor for what a caller gave to be read."""
        return tensor

    def several(self, results: Iterable[Tensor]) -> Any:
        """Return the results of a grouped operation."""
        return tuple(results)

    def split_sizes(self, splits: Any) -> tuple[list[int] | None, str]:
        """Return the splits of alltoall(), or what is wrong with them."""
        return None if splits is None else [int(split) for split in splits], ""

    def received(self, rows: Tensor, counts: Sequence[int], splits: Any) -> Any:
        """Return the result of alltoall(): rows, and how many of them came from each rank."""
        raise NotImplementedError

    # The table.

    def poll(self, handle: int) -> bool:
        """Report whether synchronize(handle) would return at once."""
        return world().poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Wait for an asynchronous operation and return its result; a second call returns None.

        Raises HorovodInternalError if the operation failed, and ValueError if the handle is unknown or this
        rank's arguments were wrong.
        """
        return world().synchronize(handle)

    def allreduce_async(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start allreduce(); synchronize() returns its result, without gradient."""
        return collectives.allreduce_one(
            self._binding, self.convert(tensor), name=name, op=choose_op(average, op),
            prescale=prescale_factor, postscale=postscale_factor, process_set=process_set,
        )  # fmt: skip

    def allreduce_async_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start allreduce_(); synchronize() returns its result."""
        return collectives.allreduce_in_place(
            self._binding, tensor, name, choose_op(average, op), prescale_factor, postscale_factor,
            process_set,
        )  # fmt: skip

    def allreduce(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Reduce a tensor over all ranks and return the result: the average, or what op says.

        All ranks pass tensors of the same type and shape, and the result has that shape.
        """
        return collectives.allreduce_now(
            self._binding, self.convert(tensor), name=name, op=choose_op(average, op),
            prescale=prescale_factor, postscale=postscale_factor, process_set=process_set,
        )  # fmt: skip

    def allreduce_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """Reduce a tensor over all ranks, overwrite it with the average (or op), and return it."""
        handle = collectives.allreduce_in_place(
            self._binding, tensor, name, choose_op(average, op), prescale_factor, postscale_factor,
            process_set, name is not None,
        )  # fmt: skip
        return tensor if handle == ENDED else self.synchronize(handle)  # type: ignore[no-any-return]

    def grouped_allreduce_async(
        self,
        tensors: Sequence[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start grouped_allreduce(); synchronize() returns its result, without gradient."""
        return collectives.allreduce(
            self._binding, [self.convert(tensor) for tensor in tensors], kind="grouped_allreduce", name=name,
            op=choose_op(average, op), prescale=prescale_factor, postscale=postscale_factor,
            process_set=process_set, then=self.several,
        )  # fmt: skip

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start grouped_allreduce_(); synchronize() returns its result."""
        tensors = list(tensors)
        return collectives.allreduce(
            self._binding, tensors, tensors, kind="grouped_allreduce", name=name, op=choose_op(average, op),
            prescale=prescale_factor, postscale=postscale_factor, process_set=process_set, then=self.several,
        )  # fmt: skip

    def grouped_allreduce(
        self,
        tensors: Sequence[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Reduce each tensor over all ranks and return the averages (or op) in the same order.

        If one reduction fails, all of them fail.
        """
        outputs = collectives.grouped_allreduce_now(
            self._binding, [self.convert(tensor) for tensor in tensors], None, name=name,
            op=choose_op(average, op), prescale=prescale_factor, postscale=postscale_factor,
            process_set=process_set,
        )  # fmt: skip
        return self.several(outputs)

    def grouped_allreduce_(
        self,
        tensors: Sequence[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Do what grouped_allreduce() does, but overwrite the tensors with the results; return them."""
        tensors = list(tensors)
        outputs = collectives.grouped_allreduce_now(
            self._binding, tensors, tensors, name=name, op=choose_op(average, op), prescale=prescale_factor,
            postscale=postscale_factor, process_set=process_set,
        )  # fmt: skip
        return self.several(outputs)

    def allgather_async(
        self, tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start allgather(); synchronize() returns its result, without gradient."""
        return collectives.allgather(
            self._binding, [self.convert(tensor)], name=name, process_set=process_set,
            then=lambda gathered: gathered[0][0],
        )  # fmt: skip

    allgather = _waiting(
        allgather_async, "Tensor",
        """Join the tensors of all ranks along the first dimension, in rank order, and return the result.

        Only the first dimension may differ between ranks.
        """,
    )  # fmt: skip

    def grouped_allgather_async(
        self, tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """Start grouped_allgather(); synchronize() returns its result, without gradient."""
        return collectives.allgather(
            self._binding, [self.convert(tensor) for tensor in tensors], name=name, process_set=process_set,
            then=lambda gathered: self.several(output for output, _ in gathered),
        )  # fmt: skip

    grouped_allgather = _waiting(grouped_allgather_async, "Any", "Return allgather() of each tensor.")

    def broadcast_async(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start broadcast(); synchronize() returns its result, without gradient."""
        return collectives.broadcast(
            self._binding, [self.convert(tensor)], None, root_rank, name=name, process_set=process_set,
            then=first,
        )  # fmt: skip

    def broadcast_async_(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start broadcast_(); synchronize() returns its result."""
        tensors = [tensor]
        return collectives.broadcast(
            self._binding, tensors, tensors, root_rank, name=name, process_set=process_set, then=first
        )

    broadcast = _waiting(
        broadcast_async, "Tensor",
        "Return the root's tensor. root_rank is a rank of the whole world, also in a process set.",
    )  # fmt: skip

    broadcast_ = _waiting(
        broadcast_async_, "Tensor",
        """Overwrite a tensor with the root's tensor and return it.

        root_rank is a rank of the whole world, also in a process set.
        """,
    )  # fmt: skip

    def alltoall_async(
        self,
        tensor: Any,
        splits: Sequence[int] | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start alltoall(); synchronize() returns its result, without gradient."""
        given, wrong = self.split_sizes(splits)
        return collectives.alltoall(
            self._binding, self.convert(tensor), given, wrong=wrong, name=name, process_set=process_set,
            then=lambda value: self.received(value[0], value[1], splits),
        )  # fmt: skip

    alltoall = _waiting(
        alltoall_async, "Any",
        """Send splits[i] rows of a tensor to rank i, and return the rows that the ranks sent to this one.

        Without splits every rank gets the same number of rows. With splits the result is a pair: the rows, in
        rank order, and how many came from each rank. Splits that do not fit the tensor raise ValueError on
        this rank, and HorovodInternalError on the others.
        """,
    )  # fmt: skip

    def join(self) -> int:
        """Declare that this rank has no more data. Wait until all ranks have joined; return the last one.

        Until then this rank contributes zeros to the allreduces of the others.
        """
        return collectives.join()

    def reducescatter_async(
        self,
        tensor: Any,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Start reducescatter(); synchronize() returns its result, without gradient."""
        return collectives.reducescatter(
            self._binding, [self.convert(tensor)], name=name, op=op, prescale=prescale_factor,
            postscale=postscale_factor, process_set=process_set, then=first,
        )  # fmt: skip

    reducescatter = _waiting(
        reducescatter_async, "Tensor",
        """Reduce a tensor over all ranks, and return this rank's rows of the average (or sum).

        Ranks get equal shares of the rows, in rank order. If the rows do not divide evenly, each of the first
        ranks gets one more. Raises ValueError if op is neither Average nor Sum.
        """,
    )  # fmt: skip

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[Any],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Start grouped_reducescatter(); synchronize() returns its result, without gradient."""
        return collectives.reducescatter(
            self._binding, [self.convert(tensor) for tensor in tensors], name=name, op=op,
            prescale=prescale_factor, postscale=postscale_factor, process_set=process_set, then=self.several,
        )  # fmt: skip

    grouped_reducescatter = _waiting(
        grouped_reducescatter_async, "Any",
        "Return reducescatter() of each tensor.",
    )  # fmt: skip

    def reduce_async(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """Start reduce(); synchronize() returns its result."""
        return collectives.reduce(
            self._binding, self.convert(tensor), root_rank, name=name, op=op, prescale=prescale_factor,
            postscale=postscale_factor, process_set=process_set,
        )  # fmt: skip

    reduce = _waiting(
        reduce_async, "Tensor | None",
        "Reduce a tensor over all ranks. The root gets the average (or op), the others None.",
    )  # fmt: skip

    def gather_async(
        self,
        tensor: Any,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start gather(); synchronize() returns its result."""
        return collectives.gather(
            self._binding, self.convert(tensor), root_rank, name=name, process_set=process_set
        )

    gather = _waiting(
        gather_async, "Tensor | None",
        "Join the tensors of all ranks along the first dimension. The root gets the result, others None.",
    )  # fmt: skip

    def scatter_async(
        self,
        tensor: Any,
        root_rank: int,
        splits: Sequence[int] | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """Start scatter(); synchronize() returns its result."""
        given = None if splits is None else [int(split) for split in splits]
        return collectives.scatter(
            self._binding, self.convert(tensor), root_rank, given, name=name, process_set=process_set
        )

    scatter = _waiting(
        scatter_async, "Tensor",
        """Distribute the rows of the root's tensor, and return this rank's rows.

        The root's splits[i] is the number of rows for rank i. Without splits the ranks get equal shares, and
        each of the first ranks one more row if the rows do not divide evenly. The other ranks pass a tensor
        that has the root's type and row shape; it may have no rows.
        """,
    )  # fmt: skip

    def send_async(self, tensor: Any, rank: int, name: str | None = None) -> int:
        """Start send(); synchronize() returns the tensor when the other rank has it."""
        return collectives.send(self._binding, self.convert(tensor), rank, name=name)

    def send(self, tensor: Any, rank: int, name: str | None = None) -> None:
        """Send a tensor to a rank that calls recv(); return when it has arrived.

        Tensors without a name arrive in the order in which they were sent.
        """
        self.synchronize(self.send_async(tensor, rank, name))

    def recv_async(self, tensor: Tensor, rank: int, name: str | None = None) -> int:
        """Start recv(); synchronize() returns the tensor."""
        return collectives.recv(self._binding, tensor, rank, name=name)

    recv = _waiting(
        recv_async, "Tensor",
        """Receive a tensor from a rank that calls send(). Overwrite the given one with it and return it.

        Both ranks pass the same type and shape.
        """,
    )  # fmt: skip
