"""The collectives for tensors of any framework: stage into the arena, submit, and bring the result back.

An ordinary tensor costs one copy into the arena and one out of it; several tensors of one call share one
request. Every function returns a handle for World.synchronize(); then turns its value, as documented, into
what the caller wants.
"""

from __future__ import annotations

import gc
import math
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Protocol

from gorun import basics, constants
from gorun.bindings import Binding, Call, element_type, on_device, path_of
from gorun.layout import pack
from gorun.library import FOLLOWING, LEADING
from gorun.process_sets import ProcessSet, global_process_set
from gorun.session import Request, Ticket
from gorun.staging import Staged, with_rows
from gorun.world import Operation, Repeated, World

# What front ends pass on as it is.
__all__ = [
    "Adasum", "Average", "BitAnd", "BitOr", "BitXor", "LogicalAnd", "LogicalOr", "LogicalXor", "Max", "Min",
    "Product", "Sum", "barrier",
]  # fmt: skip

Average = constants.AVERAGE
Sum = constants.SUM
Adasum = constants.ADASUM
Min = constants.MIN
Max = constants.MAX
Product = constants.PRODUCT
BitAnd = constants.BIT_AND
BitOr = constants.BIT_OR
BitXor = constants.BIT_XOR
LogicalAnd = constants.LOGICAL_AND
LogicalOr = constants.LOGICAL_OR
LogicalXor = constants.LOGICAL_XOR

_OPS = range(Average, LogicalXor + 1)
ENDED = -1  # the handle of what nobody need wait for
_MOST_ROWS = (1 << 31) - 1  # for one rank
BATCH_BYTES, BATCHES_UNDER_WAY = 16 << 20, 4  # of broadcast_all()


def choose_op(average: bool | None, op: int | None) -> int:
    """Return the reduction that op selects or, in older scripts, average."""
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is not None:
        return op
    if average is None:
        return Average
    text = "Parameter `average` has been replaced with `op` and will be removed in v1.0"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    return Average if average else Sum


def first(values: Sequence[Any]) -> Any:
    """Return the only value of an operation on one tensor."""
    return values[0]


def _as_is(value: Any) -> Any:
    return value


def allreduce(
    binding: Binding,
    tensors: Sequence[Any],
    targets: Sequence[Any] | None = None,
    *,
    kind: str = "allreduce",
    name: str | None = None,
    op: int = Average,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
    **options: Any,
) -> int:
    """Reduce tensors over the ranks: a list of new tensors, or the targets overwritten.

    Tensors of one element type travel as one, so that all of them are reduced, or none.
    """
    if op not in _OPS:
        raise ValueError(f"unknown reduction {op}")
    world = basics.world()
    name = world.name(kind, name, process_set.group())

    def by_host() -> int:
        return allreduce_by_host(
            world, binding, tensors, targets, name, op, prescale, postscale, process_set, then, **options
        )

    path = path_of(tensors)
    if path is not None:
        call = Call(world, process_set, tensors, targets, [name], then, op, prescale, postscale)
        handle = path.allreduce(call, by_host)
        if handle is not None:
            return handle
    return by_host()


def allreduce_by_host(
    world: World, binding: Binding, tensors: Sequence[Any], targets: Sequence[Any] | None, name: str, op: int,
    prescale: float, postscale: float, process_set: ProcessSet, then: Callable[[Any], Any] = _as_is,
    now: bool = False, **options: Any,
) -> int:  # fmt: skip
    """Do what allreduce() does, under a complete name, through the memory of hosts."""
    operation = Operation(world, process_set.group())
    described = [binding.describe(tensor) for tensor in tensors]
    by_dtype: dict[str, list[int]] = {}
    for i, (dtype, _) in enumerate(described):
        # Adasum weighs whole tensors against each other: each goes alone.
        part = f"{i + 1}of{len(tensors)}" if op == Adasum else dtype
        by_dtype.setdefault(part, []).append(i)
    # The first part has the same name on every rank, and a signature of all parts, which follow it.
    whole = 0
    if len(by_dtype) > 1:
        whole = pack([shape for _, shape in described], detail=[dtype for dtype, _ in described]).signature
    parts = list(by_dtype.values())
    packs = []
    for members in parts:
        some, of_some = [tensors[i] for i in members], [described[i] for i in members]
        into = None if targets is None else [targets[i] for i in members]
        packs.append((members, Staged(binding, some, into, described=of_some)))
    for number, (_, staged) in reversed(list(enumerate(packs, 1))):
        if len(tensors) > 1:
            operation.explain(whole or staged.signature, described)
        if len(parts) > 1:
            options["follows"] = FOLLOWING if number > 1 else LEADING
        operation.stage(
            constants.ALLREDUCE, name if number == 1 else f"{name}.part{number}", staged, op=op,
            prescale=prescale, postscale=postscale, root=whole or staged.signature, **options,
        )  # fmt: skip

    def finish(_: Sequence[Any]) -> list[Any]:
        outputs: list[Any] = [None] * len(tensors)
        for members, staged in packs:
            for i, output in zip(members, staged.load()):
                outputs[i] = output
        return then(outputs)

    if now and len(packs) == 1 and world.timeline is None:
        return operation.launch_now(finish)
    return operation.launch(finish)


def allreduce_one(
    binding: Binding, tensor: Any, *, name: str | None, op: int, prescale: float, postscale: float,
    process_set: ProcessSet, target: Any | None = None, now: bool = False,
) -> int:  # fmt: skip
    """Start to reduce one tensor; the handle's result is a new tensor, or the target overwritten."""
    return allreduce(
        binding, [tensor], None if target is None else [target], name=name, op=op, prescale=prescale,
        postscale=postscale, process_set=process_set, then=first, now=now,
    )  # fmt: skip


def allreduce_now(binding: Binding, tensor: Any, *, name: str | None, **how: Any) -> Any:
    """Reduce one tensor, and wait for it: a new tensor.

    From the second time on, the ranks of one host do it in a slot, or on the belt.
    """
    handle = allreduce_one(binding, tensor, name=name, now=name is not None, **how)
    return basics.world().synchronize(handle)


def allreduce_in_place(
    binding: Binding, tensor: Any, name: str | None, op: int, prescale: float, postscale: float,
    process_set: ProcessSet, now: bool = False,
) -> int:  # fmt: skip
    """Start to reduce one tensor in place. Return its handle.

    It makes few objects, as its time is most of that of a small tensor. What is encoded is kept for the next
    one of its name. now: the caller waits at once; the handle is ENDED if it need not.
    """
    world = basics.world()
    session = world.session
    place = None
    if process_set is global_process_set and world.timeline is None and not on_device(tensor):
        place = binding.place(tensor)
    dtype, shape, address = place or (None, (), 0)
    which = now, op, prescale, postscale, session.wire, dtype, shape
    kept = world.kept.pop(name, None)  # type: ignore[arg-type]
    if kept is None or kept[0] != which or (kept[3] != address and not session.aim(kept[2], address)):
        described, shape = binding.describe(tensor)
        if place is None or op not in _OPS or 0 in shape:
            return allreduce_one(
                binding, tensor, name=name, op=op, prescale=prescale, postscale=postscale,
                process_set=process_set, target=tensor, now=now,
            )  # fmt: skip
        number, itemsize = element_type(described)
        request = Request(
            constants.ALLREDUCE, world.name("allreduce", name), number, shape, address, address,
            math.prod(shape) * itemsize, op=op, prescale=prescale, postscale=postscale,
        )  # fmt: skip
        ticket = Ticket()
        kept = [which, [ticket], session.encode(request, ticket, now), address]
    kept[3] = address
    try:
        if world.begin(session.repeat, kept[2]):
            world.keep(name, kept)
            return ENDED
        return world.launch(Repeated(world, name, kept, binding, tensor, place))
    except BaseException:
        world.abandon(Repeated(world, name, kept, binding, tensor, place))
        raise


def grouped_allreduce_now(
    binding: Binding, tensors: Sequence[Any], targets: Sequence[Any] | None, *, name: str | None, **how: Any
) -> list[Any]:
    """Reduce tensors together, and wait for them: a list of new ones, or the targets overwritten."""
    handle = allreduce(
        binding, tensors, targets, kind="grouped_allreduce", name=name, now=name is not None, **how
    )
    return basics.world().synchronize(handle)  # type: ignore[no-any-return]


def broadcast(
    binding: Binding,
    tensors: Sequence[Any],
    targets: Sequence[Any] | None,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
) -> int:
    """Send the root's tensors to all: a list of new tensors, or the targets overwritten."""
    world = basics.world()
    name = world.name("broadcast", name, process_set.group())

    def by_host() -> int:
        return _broadcast_by_host(world, binding, tensors, targets, root_rank, name, process_set, then)

    path = path_of(tensors)
    if path is not None:
        handle = path.broadcast(
            Call(world, process_set, tensors, targets, [name], then), root_rank, by_host
        )
        if handle is not None:
            return handle
    return by_host()


def _broadcast_by_host(
    world: World, binding: Binding, tensors: Sequence[Any], targets: Sequence[Any] | None, root_rank: int,
    name: str, process_set: ProcessSet, then: Callable[[Any], Any],
) -> int:  # fmt: skip
    is_root = _is_root(world, root_rank, process_set)
    operation = Operation(world, process_set.group())
    staged = Staged(binding, tensors, targets, as_bytes=len(tensors) > 1, reads=is_root)
    if len(tensors) > 1:
        operation.explain(staged.signature, [binding.describe(tensor) for tensor in tensors])
    operation.stage(
        constants.BROADCAST, name, staged, root=root_rank, prescale=float(1 + staged.signature)
    )
    return operation.launch(lambda _: then(staged.load()))


def broadcast_all(
    binding: Binding, tensors: Sequence[Any], root_rank: int, process_set: ProcessSet, name: str | None = None
) -> None:
    """Overwrite any number of tensors with the root's: many small ones as one, to bound the shared memory."""
    under_way: list[int] = []
    batch: list[Any] = []
    nbytes = count = 0
    for i, tensor in enumerate(tensors, 1):
        dtype, shape = binding.describe(tensor)
        batch.append(tensor)
        nbytes += math.prod(shape) * element_type(dtype)[1]
        if nbytes < BATCH_BYTES and i < len(tensors):
            continue
        count += 1
        part = None if name is None else f"{name}.{count}"
        under_way.append(broadcast(binding, batch, batch, root_rank, name=part, process_set=process_set))
        batch, nbytes = [], 0
        if len(under_way) == BATCHES_UNDER_WAY:
            basics.world().synchronize(under_way.pop(0))
    for handle in under_way:
        basics.world().synchronize(handle)


def allgather(
    binding: Binding,
    tensors: Sequence[Any],
    *,
    kind: str = "allgather",
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
    targets: Sequence[Any] | None = None,
) -> int:
    """Join each tensor with the other ranks' along the first dimension: a list of (tensor, rows by rank).

    targets: memory that the path of a device may use for the results.
    """
    world = basics.world()
    names = _members(world.name(kind, name, process_set.group()), len(tensors))

    def alone(i: int) -> int:
        return _allgather_by_host(world, binding, [tensors[i]], [names[i]], process_set, first)

    path = path_of(tensors)
    if path is not None:
        handle = path.allgather(Call(world, process_set, tensors, targets, names, then), alone)
        if handle is not None:
            return handle
    return _allgather_by_host(world, binding, tensors, names, process_set, then)


def _members(name: str, count: int) -> list[str]:
    """Return the names of the tensors of one call that travel each by itself."""
    return [name] if count == 1 else [f"{name}_{i + 1}of{count}" for i in range(count)]


def _allgather_by_host(
    world: World, binding: Binding, tensors: Sequence[Any], names: Sequence[str], process_set: ProcessSet,
    then: Callable[[Any], Any],
) -> int:  # fmt: skip
    operation = Operation(world, process_set.group())
    for name, tensor in zip(names, tensors):
        operation.stage(constants.ALLGATHER, name, Staged(binding, [tensor], writes=False))
    return operation.launch(lambda results: then(with_rows(binding, results, tensors)))


def alltoall(
    binding: Binding,
    tensor: Any,
    splits: Sequence[int] | None,
    *,
    wrong: str = "",
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
    target: Any = None,
    received: Sequence[int] | None = None,
) -> int:
    """Send splits[i] rows to rank i. The result is a pair: the rows received, and their number by rank.

    wrong: the caller's error, if it could not read its splits. target: memory that the path of a device may
    use for the result. received: how many rows come from each rank, if the caller knows.
    """
    world = basics.world()
    group = process_set.group()
    members = process_set.size()
    shape = binding.describe(tensor)[1]
    operation = Operation(world, group)
    if not shape:
        splits = []  # makes the engine report the error to all ranks
    elif splits is not None or wrong:
        splits = _dealt(operation, splits or (), shape[0], members, wrong)
    else:
        each, more = divmod(shape[0], members)
        splits = [each] * members
        if more:
            operation.wrong = (
                "splits not provided, but first dimension of tensor is not an even multiple of "
                "the number of workers."
            )
        elif each > _MOST_ROWS:
            operation.wrong = _too_many(each)
        if operation.wrong:
            splits = []
    if shape and not operation.wrong:
        tensor = tensor[: sum(splits)]
    name = world.name("alltoall", name, group)

    def by_host() -> int:
        operation.stage(constants.ALLTOALL, name, Staged(binding, [tensor], writes=False), splits=splits)
        return operation.launch(lambda results: then(with_rows(binding, results, [tensor])[0]))

    path = path_of([tensor]) if shape and not operation.wrong else None
    if path is not None:
        expected = splits if received is None else received  # assume that it receives what it sends
        targets = None if target is None else [target]
        call = Call(world, process_set, [tensor], targets, [name], then)
        handle = path.alltoall(call, splits, expected, by_host)
        if handle is not None:
            return handle
    return by_host()


def _dealt(
    operation: Operation, splits: Sequence[int], rows: int, members: int, wrong: str = ""
) -> list[int]:
    """Return splits for the engine. If they are wrong, note why: the engine reports it to all ranks."""
    if wrong:
        operation.wrong = wrong
    elif len(splits) != members:
        operation.wrong = "Number of entries in splits does not equal number of workers."
    elif not -_MOST_ROWS <= min(splits) <= max(splits) <= _MOST_ROWS:
        operation.wrong = _too_many(max(splits, key=abs))
    if operation.wrong:
        return [0] * (members + 1)  # [] has another meaning, and there may be too many for a message
    if min(splits) < 0:
        operation.wrong = "splits must not be negative."
    elif sum(splits) > rows:
        operation.wrong = "Sum of splits entries is greater than the first dimension of tensor."
    return list(splits)


def _too_many(rows: int) -> str:
    return f"splits have {rows} rows for a rank (0 to {_MOST_ROWS} are possible)."


def reducescatter(
    binding: Binding,
    tensors: Sequence[Any],
    *,
    name: str | None = None,
    op: int = Average,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
    targets: Sequence[Any] | None = None,
) -> int:
    """Reduce tensors and keep this rank's share of the rows of each: a list of tensors.

    If the rows do not divide evenly, each of the first ranks gets one more. targets: memory that the path of
    a device may use for the results.
    """
    if op not in _OPS:
        raise ValueError(f"unknown reduction {op}")
    world = basics.world()
    names = _members(world.name("reducescatter", name, process_set.group()), len(tensors))

    def by_host(some: Sequence[Any], names: Sequence[str], then: Callable[[Any], Any]) -> int:
        return _reducescatter_by_host(world, binding, some, names, op, prescale, postscale, process_set, then)

    path = path_of(tensors)
    if path is not None:
        call = Call(world, process_set, tensors, targets, names, then, op, prescale, postscale)
        handle = path.reducescatter(call, lambda i: by_host([tensors[i]], [names[i]], first))
        if handle is not None:
            return handle
    return by_host(tensors, names, then)


def _reducescatter_by_host(
    world: World, binding: Binding, tensors: Sequence[Any], names: Sequence[str], op: int, prescale: float,
    postscale: float, process_set: ProcessSet, then: Callable[[Any], Any],
) -> int:  # fmt: skip
    operation = Operation(world, process_set.group())
    for name, tensor in zip(names, tensors):
        operation.stage(
            constants.REDUCESCATTER, name, Staged(binding, [tensor], writes=False), op=op, prescale=prescale,
            postscale=postscale,
        )  # fmt: skip

    def finish(results: Sequence[Any]) -> Any:
        if op not in (Average, Sum):  # not earlier: ranks that passed another op must learn of the mismatch
            raise ValueError("Reducescatter currently only supports AVERAGE and SUM.")
        return then([out for out, _ in with_rows(binding, results, tensors)])

    return operation.launch(finish)


def reduce(
    binding: Binding,
    tensor: Any,
    root_rank: int,
    *,
    name: str | None = None,
    op: int = Average,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
) -> int:
    """Reduce a tensor over the ranks. The result is a new tensor on the root, None elsewhere."""
    if op == Adasum or op not in _OPS:
        raise ValueError(f"there is no reduction {op} for one rank")
    world = basics.world()
    group = process_set.group()
    is_root = _is_root(world, root_rank, process_set)
    operation = Operation(world, group)
    operation.stage(
        constants.REDUCE, world.name("reduce", name, group), Staged(binding, [tensor], writes=False), op=op,
        root=root_rank, prescale=prescale, postscale=postscale,
    )  # fmt: skip
    return operation.launch(
        lambda results: then(with_rows(binding, results, [tensor])[0][0] if is_root else None)
    )


def gather(
    binding: Binding,
    tensor: Any,
    root_rank: int,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
) -> int:
    """Join tensors along the first dimension. The result is a new tensor on the root, None elsewhere."""
    world = basics.world()
    group = process_set.group()
    is_root = _is_root(world, root_rank, process_set)
    operation = Operation(world, group)
    staged = Staged(binding, [tensor], writes=False)
    operation.stage(constants.GATHER, world.name("gather", name, group), staged, root=root_rank)
    return operation.launch(
        lambda results: then(with_rows(binding, results, [tensor])[0][0] if is_root else None)
    )


def scatter(
    binding: Binding,
    tensor: Any,
    root_rank: int,
    splits: Sequence[int] | None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    then: Callable[[Any], Any] = _as_is,
) -> int:
    """Distribute the root's rows: splits[i] to rank i, or equal shares. The result is a new tensor.

    The other ranks' tensors only show the type and the row shape.
    """
    world = basics.world()
    group = process_set.group()
    is_root = _is_root(world, root_rank, process_set)
    shape = binding.describe(tensor)[1]
    options: dict[str, Any] = {"root": root_rank}
    operation = Operation(world, group)
    if is_root and splits is not None:
        options["splits"] = _dealt(operation, splits, shape[0] if shape else 0, process_set.size())
    staged = Staged(binding, [tensor if is_root or not shape else tensor[:0]], writes=False)
    operation.stage(constants.SCATTER, world.name("scatter", name, group), staged, **options)
    return operation.launch(lambda results: then(with_rows(binding, results, [tensor])[0][0]))


def send(
    binding: Binding, tensor: Any, rank: int, *, name: str | None = None, then: Callable[[Any], Any] = _as_is
) -> int:
    """Send a tensor to a rank that calls recv(). The result is the tensor."""
    world = basics.world()
    _check_peer(world, rank)
    operation = Operation(world, 0)
    staged = Staged(binding, [tensor], writes=False)
    operation.stage(
        constants.SEND, world.name(f"send.{world.session.rank}.{rank}", name), staged, root=rank
    )
    return operation.launch(lambda _: then(tensor))


def recv(
    binding: Binding, tensor: Any, rank: int, *, name: str | None = None, then: Callable[[Any], Any] = _as_is
) -> int:
    """Overwrite a tensor with one that a rank sends, of the same type and shape. The result is the tensor."""
    world = basics.world()
    _check_peer(world, rank)
    operation = Operation(world, 0)
    staged = Staged(binding, [tensor], [tensor], reads=False)
    operation.stage(
        constants.RECV, world.name(f"send.{rank}.{world.session.rank}", name), staged, root=rank
    )
    return operation.launch(lambda _: then(staged.load()[0]))


def _is_root(world: World, root_rank: int, process_set: ProcessSet) -> bool:
    if not -(1 << 31) <= root_rank < 1 << 31:  # the engine reports other invalid roots to all ranks
        raise ValueError(f"Root rank {root_rank} is not one of the {process_set.size()} ranks taking part.")
    return world.session.rank == root_rank


def _check_peer(world: World, rank: int) -> None:
    if rank == world.session.rank or not 0 <= rank < world.session.size:
        raise ValueError(f"rank {rank} is not another rank of a world of {world.session.size}")


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when all ranks have called it."""
    world = basics.world()
    group = process_set.group()
    operation = Operation(world, group)
    name = world.name("barrier", None, group)
    operation.request(constants.BARRIER, name, constants.UINT8, (), None, False)
    world.synchronize(operation.launch(lambda _: None))


def join() -> int:
    """Wait until all ranks have called join(), and return the last rank to do so.

    A rank calls it when it has no more data. Until all have joined, this rank contributes zeros to the
    allreduces of the others, and averages still divide by the number of all ranks. Other operations fail.

    A rank that joins before its first step also takes part in the agreements that optimizers make in their
    first step, in the order in which its script created the optimizers. So with several optimizers, ranks
    with data must take the first steps in that order too.
    """
    world = basics.world()
    if any(attendant.due() for attendant in _living()):
        gc.collect()  # drops what the script has dropped, so that all ranks find the same objects
    begun = [attendant.begin() for attendant in _living() if attendant.due()]
    operation = Operation(world, 0)
    operation.request(constants.JOIN, "join", constants.UINT8, (), None, False)
    last = int(world.synchronize(operation.launch(lambda results: results[0].rows[0])))
    for finish in begun:
        finish()
    world.joined()
    return last


class Attendant(Protocol):
    """An agreement of all ranks. A rank that joins before its first batch must still take part."""

    def due(self) -> bool:
        """Report whether this rank has not taken part yet."""

    def begin(self) -> Callable[[], None]:
        """Take part without waiting for others; the returned function waits."""


_attendants: list[weakref.ref[Attendant]] = []


def before_join(attendant: Attendant) -> None:
    """Let join() run an attendant's agreement, as long as the attendant lives."""
    _attendants[:] = [ref for ref in _attendants if ref() is not None]
    _attendants.append(weakref.ref(attendant))


def _living() -> Iterator[Attendant]:
    return (attendant for attendant in (ref() for ref in _attendants) if attendant is not None)
