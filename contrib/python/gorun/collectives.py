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
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Protocol

from gorun import basics, constants, errors
from gorun.exceptions import HorovodInternalError
from gorun.layout import alone, pack
from gorun.message import WIRE_BITS
from gorun.process_sets import ProcessSet, global_process_set
from gorun.slot import Slot, Slots, suits
from gorun.slot_table import MAX_BELT_BYTES, MAX_SLOT_BYTES
from gorun.world import Operation, Ready, World

try:
    from gorun import sums
except ImportError:  # frameworks run without NumPy
    sums = None  # type: ignore[assignment]

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

# Element types by the name that numpy, torch and the engine have in common.
DTYPES: dict[str, int] = {
    name: getattr(constants, name.upper())
    for name in (
        "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
        "float32", "float64", "bool", "complex64", "complex128",
    )
}  # fmt: skip

_ALIGN = 64  # bytes between tensors of different types
_MOST_READY = 64 << 10  # bytes of a tensor whose memory is kept for the next one of its name
_MOST_ROWS = (1 << 31) - 1  # for one rank


class Binding(Protocol):
    """The operations of a framework on its tensors. memory has exactly the bytes of the tensor."""

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        """Return the framework's name of the element type, and the shape."""

    def store(self, tensor: Any, memory: memoryview) -> None:
        """Copy a tensor with any strides to memory; it is not empty."""

    def load(self, memory: memoryview, shape: Sequence[int], like: Any) -> Any:
        """Return a new tensor of that shape, otherwise like another, from memory that may be read-only."""

    def load_into(self, memory: memoryview, tensor: Any) -> None:
        """Overwrite a tensor from memory; it is not empty."""

    # Only frameworks whose tensors are reduced need the following methods.

    def gather(self, tensors: Sequence[Any], memory: memoryview) -> None:
        """Copy tensors of one type to memory, one after the other."""

    def scatter(
        self, memory: memoryview, itemsize: int, counts: Sequence[int], tensors: Sequence[Any]
    ) -> None:
        """Overwrite tensors of one type, with these numbers and sizes of elements, from memory."""

    def empty(self, shape: Sequence[int], like: Any) -> Any:
        """Return a new tensor of that shape, otherwise like another, for scatter() to overwrite."""

    def cell(self, memory: memoryview, like: Any) -> Cell:
        """Return what moves tensors of the type and shape of another to and from memory, again and again."""

    adds: bool
    """Whether the framework can add up tensors that lie in slots, by sums.Inputs."""

    def flat(self, tensor: Any) -> Any:
        """Return a flat array of NumPy's over the memory of a tensor, None if that is not possible.

        Only a framework that adds has it.
        """


class Cell(Protocol):
    """Memory for tensors of one type and shape."""

    def fits(self, tensor: Any) -> bool:
        """Report whether a tensor is of that type and shape."""

    def put(self, tensor: Any) -> None:
        """Copy a tensor that fits to the memory."""

    def get(self, like: Any, target: Any | None) -> Any:
        """Return the content of the memory, as a new tensor otherwise like another, or in target."""


class DevicePath(Protocol):
    """Operations on tensors where they are, in the memory of devices, for a framework that has such tensors.

    by_host starts the operation on the path by the host, and returns its handle.
    """

    def holds(self, tensor: Any) -> bool:
        """Report whether a tensor lies on a device."""

    def allreduce(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, name: str, op: int,
        prescale: float, postscale: float, process_set: ProcessSet, then: Callable[[Any], Any],
        by_host: Callable[[], int],
    ) -> int | None:  # fmt: skip
        """Start what allreduce() does, under a complete name; None if it goes by the host."""

    def broadcast(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, root_rank: int, name: str,
        process_set: ProcessSet, then: Callable[[Any], Any], by_host: Callable[[], int],
    ) -> int | None:  # fmt: skip
        """Start what broadcast() does, under a complete name; None if it goes by the host."""

    # Each tensor has a name of its own here, and goes by the host alone: by_host(i) starts it.

    def allgather(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, names: Sequence[str],
        process_set: ProcessSet, then: Callable[[Any], Any], by_host: Callable[[int], int],
    ) -> int | None:  # fmt: skip
        """Start what allgather() does; None if it goes by the host."""

    def reducescatter(
        self, world: World, tensors: Sequence[Any], targets: Sequence[Any] | None, names: Sequence[str],
        op: int, prescale: float, postscale: float, process_set: ProcessSet, then: Callable[[Any], Any],
        by_host: Callable[[int], int],
    ) -> int | None:  # fmt: skip
        """Start what reducescatter() does; None if it goes by the host."""

    def alltoall(
        self, world: World, tensor: Any, target: Any, splits: Sequence[int], received: Sequence[int],
        name: str, process_set: ProcessSet, then: Callable[[Any], Any], by_host: Callable[[], int],
    ) -> int | None:  # fmt: skip
        """Start what alltoall() does; None if it goes by the host.

        received: how many rows this rank expects from each. If that is wrong on any rank, the host has it.
        """


_device_path: DevicePath | None = None  # None: all tensors go by the host


def use_device_path(path: DevicePath | None) -> None:
    """Set what may carry tensors of devices."""
    global _device_path
    _device_path = path


def _on_device(tensor: Any) -> bool:
    return _device_path is not None and _device_path.holds(tensor)


class _Sum:
    """The operations of a framework on its tensors in a slot. half is 0 or 1, in turns."""

    def __init__(self, binding: Binding, slot: Slot, place: int, by: float, like: Any) -> None:
        self._inputs = sums.Inputs(slot.inputs, binding.describe(like)[0], by)
        self._mine = [binding.cell(half[place], like) for half in slot.inputs]
        self._total = binding.cell(memoryview(self._inputs.total).cast("B"), like)
        self.fits = self._total.fits

    def put(self, tensor: Any, half: int) -> None:
        """Copy a tensor that fits to this rank's place in a half."""
        self._mine[half].put(tensor)

    def add(self, half: int, like: Any, target: Any | None) -> Any:
        """Return the sum of a half, as a new tensor otherwise like another, or in target."""
        self._inputs.add(half)
        return self._total.get(like, target)


def _load(binding: Binding, tensors: Sequence[Any], targets: Sequence[Any], by: float) -> sums.Load | None:
    """Return tensors for the belt, None if they cannot go over it as they are."""
    sources = [binding.flat(tensor) for tensor in tensors]
    if any(source is None for source in sources):
        return None
    arrays, touched = sources, sources
    if targets is not tensors:
        arrays = [binding.flat(target) for target in targets]
        touched = sources + arrays
    if any(array is None for array in touched) or sums.overlap(touched):
        return None
    return sums.Load(sources, arrays, by)


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


class _Staged:
    """Tensors in one block: of one element type, or of any types as bytes."""

    def __init__(
        self,
        world: World,
        binding: Binding,
        tensors: Sequence[Any],
        as_bytes: bool = False,
        described: Sequence[tuple[str, tuple[int, ...]]] | None = None,
    ) -> None:
        self._binding = binding
        self._tensors = tensors
        if described is None:
            described = [binding.describe(tensor) for tensor in tensors]
        self._shapes = [shape for _, shape in described]
        self._adjoin = len(tensors) > 1 and not as_bytes
        dtype = "uint8" if as_bytes else described[0][0]
        self.dtype, self._itemsize = element_type(dtype)
        if as_bytes:
            sizes = [(math.prod(shape) * element_type(dtype)[1],) for dtype, shape in described]
            self._layout = pack(sizes, _ALIGN, described)
            self.shape: tuple[int, ...] = (self._layout.used,)
        elif len(tensors) > 1:
            self._layout = pack(self._shapes)
            self.shape = (self._layout.used,)
        else:
            self.shape = self._shapes[0]  # so that the error of ranks which disagree shows both
            self._layout = alone(math.prod(self.shape))
        self.signature = self._layout.signature
        nbytes = math.prod(self.shape) * self._itemsize
        self.block = world.alloc(nbytes) if nbytes else None

    def fill(self) -> None:
        """Copy the tensors into the block."""
        if self.block is None:
            return
        if self._adjoin:
            self._binding.gather(self._tensors, self.block.view)
            return
        for tensor, memory in zip(self._tensors, self._memories()):
            if memory:
                self._binding.store(tensor, memory)

    def load(self) -> list[Any]:
        """Return new tensors."""
        if self._adjoin:
            return self.load_into([*map(self._binding.empty, self._shapes, self._tensors)])
        return [
            self._binding.load(memory, shape, tensor)
            for memory, shape, tensor in zip(self._memories(), self._shapes, self._tensors)
        ]

    def load_into(self, targets: Sequence[Any]) -> list[Any]:
        """Overwrite the targets and return them."""
        if self._adjoin and self.block is not None:
            self._binding.scatter(self.block.view, self._itemsize, self._layout.counts, targets)
            return list(targets)
        for memory, target in zip(self._memories(), targets):
            if memory:
                self._binding.load_into(memory, target)
        return list(targets)

    def _memories(self) -> Iterator[memoryview]:
        size = self._itemsize
        view = memoryview(b"") if self.block is None else self.block.view
        for offset, count in zip(self._layout.offsets, self._layout.counts):
            yield view[offset * size : (offset + count) * size]


def _stage(
    world: World,
    binding: Binding,
    groups: Sequence[Sequence[Any]],
    described: Sequence[Sequence[tuple[str, tuple[int, ...]]] | None] | None = None,
) -> list[_Staged]:
    """Copy groups of tensors, each of one element type, to blocks, or leave nothing behind."""
    staged: list[_Staged] = []
    try:
        for tensors, of_them in zip(groups, described or [None] * len(groups)):
            staged.append(_Staged(world, binding, tensors, described=of_them))
            staged[-1].fill()
    except BaseException:
        for one in staged:
            if one.block is not None:
                one.block.free()
        raise
    return staged


def element_type(dtype: str) -> tuple[int, int]:
    """Return number and size of an element type."""
    try:
        return DTYPES[dtype], constants.ITEMSIZE[DTYPES[dtype]]
    except KeyError:
        raise ValueError(f"Tensor type {dtype} is not supported.") from None


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
    if op not in range(Average, LogicalXor + 1):
        raise ValueError(f"unknown reduction {op}")
    world = basics.world()
    name = world.name(kind, name, process_set.group())

    def by_host() -> int:
        return allreduce_by_host(
            world, binding, tensors, targets, name, op, prescale, postscale, process_set, then, **options
        )

    if _device_path is not None and tensors and _device_path.holds(tensors[0]):
        handle = _device_path.allreduce(
            world, tensors, targets, name, op, prescale, postscale, process_set, then, by_host
        )
        if handle is not None:
            return handle
    return by_host()


def allreduce_by_host(
    world: World, binding: Binding, tensors: Sequence[Any], targets: Sequence[Any] | None, name: str, op: int,
    prescale: float, postscale: float, process_set: ProcessSet, then: Callable[[Any], Any] = _as_is,
    **options: Any,
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
    groups, of_them = ([[values[i] for i in members] for members in parts] for values in (tensors, described))
    packs = list(zip(parts, _stage(world, binding, groups, of_them)))
    for number, (_, staged) in reversed(list(enumerate(packs, 1))):
        if len(tensors) > 1:
            operation.explain(whole or staged.signature, described)
        if len(parts) > 1:
            options["splits"] = constants.FOLLOWS if number > 1 else constants.LEADS
        operation.request(
            constants.ALLREDUCE, name if number == 1 else f"{name}.part{number}", staged.dtype,
            staged.shape, staged.block, True, op=op, prescale=prescale, postscale=postscale,
            root=whole or staged.signature, **options,
        )  # fmt: skip

    def finish(_: Sequence[Any]) -> list[Any]:
        outputs: list[Any] = [None] * len(tensors)
        for members, staged in packs:
            into = None if targets is None else [targets[i] for i in members]
            for i, output in zip(members, staged.load() if into is None else staged.load_into(into)):
                outputs[i] = output
        return then(outputs)

    return operation.launch(finish)


def allreduce_now(
    binding: Binding,
    tensor: Any,
    target: Any | None,
    *,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Any:
    """Reduce one tensor, and wait for it: a new tensor, or the target overwritten.

    From the second time on, the ranks of one host do it in a slot, if it is small.
    """
    world = basics.world()
    slots = None
    if not _on_device(tensor):
        slots = _slots(world, binding, name, prescale, postscale, process_set)
    if slots is None:
        handle = _start(binding, tensor, target, name, op, prescale, postscale, process_set)
        return world.synchronize(handle)
    try:  # no context manager: a generator's costs a microsecond, a fifth of the sum
        slots.enter()
        slot = _slot(world, slots, binding, tensor, key := f"allreduce.{name}", op)
        if slot is not None:
            awaited = object()
            try:
                world.occupy(key, awaited)
                if slot.belt:
                    tensors, into = [tensor], None if target is None else [target]
                    outputs = _carry(world, slots, slot, binding, tensors, into, key, op)
                    if outputs is not None:
                        return outputs[0]
                else:
                    half = slots.half(slot)
                    slot.arithmetic.put(tensor, half)
                    if slots.meet(key, slot):
                        return slot.arithmetic.add(half, tensor, target)
            except errors.GorunError as error:
                raise HorovodInternalError(str(error)) from error
            finally:
                world.leave(key, awaited)
        handle = _start(binding, tensor, target, name, op, prescale, postscale, process_set, slot=True)
    finally:
        slots.leave()
    return world.synchronize(handle)


def grouped_allreduce_now(
    binding: Binding,
    tensors: Sequence[Any],
    targets: Sequence[Any] | None,
    *,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> list[Any]:
    """Reduce tensors together, and wait for them: a list of new ones, or the targets overwritten."""
    world = basics.world()
    slots = None
    if not tensors or not _on_device(tensors[0]):
        slots = _slots(world, binding, name, prescale, postscale, process_set)
    described = [binding.describe(tensor) for tensor in tensors]
    options: dict[str, Any] = {}
    try:
        if slots is not None and len(tensors) > 1 and len({dtype for dtype, _ in described}) == 1:
            number, itemsize = element_type(described[0][0])
            layout = pack([shape for _, shape in described])
            if slots.offers_belt(layout.used * itemsize):
                slots.enter()
                options["slot"] = True
                slot = slots.find(key := f"grouped_allreduce.{name}", op | world.session.wire << WIRE_BITS)
                what = (number, (layout.used,), layout.signature)
                if slot is not None and slot.belt and (slot.dtype, slot.shape, slot.signature) == what:
                    outputs = _carry_alone(world, slots, slot, binding, tensors, targets, key, op)
                    if outputs is not None:
                        return outputs
        handle = allreduce(
            binding, tensors, targets, kind="grouped_allreduce", name=name, op=op, prescale=prescale,
            postscale=postscale, process_set=process_set, **options,
        )  # fmt: skip
    finally:
        if options and slots is not None:
            slots.leave()
    outputs = world.synchronize(handle)
    return outputs  # type: ignore[no-any-return]


def _carry_alone(world: World, *rest: Any) -> list[Any] | None:
    """Call _carry() as the only operation of its name."""
    key, awaited = rest[-2], object()
    try:
        world.occupy(key, awaited)
        return _carry(world, *rest)
    except errors.GorunError as error:
        raise HorovodInternalError(str(error)) from error
    finally:
        world.leave(key, awaited)


class Turns:
    """Where all ranks of the world, on one host, meet for large allreduces that they call in the same order.

    A meeting has no name of a tensor, so that it serves tensors of any size: each rank brings a mark of what
    it has come for, and where the marks differ the daemon finds out what is wrong. After that, and where a
    rank cannot come, the daemon does all of them.
    """

    def __init__(self, world: World, slots: Slots, binding: Binding, name: str) -> None:
        self._world, self._slots, self._binding, self._name = world, slots, binding, name
        self._key = f"allreduce.{name}"
        self._opened = False
        self._closed = False

    def suit(self, tensor: Any, op: int) -> bool:
        """Report whether an allreduce is one to carry: in a sound program the same on all ranks."""
        if self._closed:
            return False
        dtype, shape = self._binding.describe(tensor)
        number = DTYPES.get(dtype)
        if number is None or not suits(number, op, 1.0, 1.0):
            return False
        return MAX_SLOT_BYTES < math.prod(shape) * constants.ITEMSIZE[number] <= MAX_BELT_BYTES

    def carry(self, tensor: Any, op: int, name: str, seconds: float) -> bool:
        """Reduce a tensor in place: True, or False if the daemon has to. One thread may call this.

        Raise TimeoutError if the others do not come within so many seconds.
        """
        slots, world = self._slots, self._world
        try:
            slots.enter()
            if not self._opened:
                self._open(seconds)
            slot = slots.find(self._key, Sum | world.session.wire << WIRE_BITS)
            by = 1.0 / world.session.size if op == Average else 1.0
            load = None if slot is None else _load(self._binding, only := [tensor], only, by)
            if load is not None and world.timeline is None:
                dtype, shape = self._binding.describe(tensor)
                mark = zlib.crc32(f"{name} {dtype} {shape} {op}".encode())
                if slots.carry(self._key, slot, load, mark, seconds):
                    return True
            slots.close(self._key)
            self._closed = True
            return False
        except errors.GorunError as error:
            raise HorovodInternalError(str(error)) from error
        finally:
            slots.leave()

    def _open(self, seconds: float) -> None:
        """Have the daemon give the meeting its slot on the belt. Raise TimeoutError as carry() does."""
        self._opened = True
        number, itemsize = element_type("uint32")
        block = self._world.alloc(MAX_SLOT_BYTES + itemsize)
        operation = Operation(self._world, 0)
        operation.request(
            constants.ALLREDUCE, self._key, number, (block.nbytes // itemsize,), block, True, op=Sum,
            slot=self._world.timeline is None,
        )  # fmt: skip
        handle = operation.launch(_as_is)
        if not self._world.attend(handle, seconds):
            self._world.give_up(handle)
            raise TimeoutError
        self._world.synchronize(handle)


def turns(binding: Binding, name: str) -> Turns | None:
    """Return where ranks meet for large allreduces; None if they are not all on one host, or cannot."""
    world = basics.world()
    slots = world.session.slots
    if slots is None or slots.belt is None or not binding.adds:
        return None
    return Turns(world, slots, binding, name)


def allreduce_soon(
    binding: Binding,
    tensor: Any,
    target: Any | None,
    *,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> int:
    """Start to reduce one tensor; the handle's result is a new tensor, or the target overwritten."""
    world = basics.world()
    if name is not None and world.timeline is None and not _on_device(tensor):
        key = (process_set.group(), f"allreduce.{name}")
        how = (op, prescale, postscale, world.session.wire)
        ready = world.ready.pop(key, None)
        if ready is not None and (ready.how != how or not ready.cell.fits(tensor)):
            ready.block.free()
            ready = None
        if ready is None:
            ready = _prepare(world, binding, tensor, key, how)
        if ready is not None:
            operation = Operation(world, key[0])
            ready.cell.put(tensor)
            return operation.repeat(ready, lambda _: ready.cell.get(tensor, target))
    return _start(binding, tensor, target, name, op, prescale, postscale, process_set)


def _start(
    binding: Binding, tensor: Any, target: Any | None, name: str | None, op: int, prescale: float,
    postscale: float, process_set: ProcessSet, **options: Any,
) -> int:  # fmt: skip
    """Start to reduce one tensor by the daemon."""
    return allreduce(
        binding, [tensor], None if target is None else [target], name=name, op=op, prescale=prescale,
        postscale=postscale, process_set=process_set, then=first, **options,
    )  # fmt: skip


def _prepare(
    world: World, binding: Binding, tensor: Any, key: tuple[int, str], how: tuple[int, float, float, int]
) -> Ready | None:
    """Prepare for an allreduce that may be repeated; None if its memory is not worth keeping."""
    op, prescale, postscale, _ = how
    if op not in range(Average, LogicalXor + 1):
        raise ValueError(f"unknown reduction {op}")
    dtype, shape = binding.describe(tensor)
    number, itemsize = element_type(dtype)
    nbytes = math.prod(shape) * itemsize
    if not 0 < nbytes <= _MOST_READY:
        return None
    block = world.alloc(nbytes)
    try:
        request = world.session.encode(
            constants.ALLREDUCE, key[1], number, shape, block, op=op, prescale=prescale, postscale=postscale,
            group=key[0],
        )  # fmt: skip
        if request is not None:
            return Ready(key, how, block, binding.cell(block.view, tensor), request)
    except BaseException:
        block.free()
        raise
    block.free()
    return None


def _slots(
    world: World, binding: Binding, name: str | None, prescale: float, postscale: float,
    process_set: ProcessSet,
) -> Slots | None:  # fmt: skip
    """Return the slots, if such an allreduce can use one."""
    possible = (
        name is not None and prescale == postscale == 1.0 and binding.adds and world.timeline is None
    )
    return world.session.slots if possible and process_set.group() == 0 else None


def _slot(world: World, slots: Slots, binding: Binding, tensor: Any, key: str, op: int) -> Slot | None:
    """Return the slot of a name, if there is one for this tensor."""
    session = world.session
    slot = slots.find(key, op | session.wire << WIRE_BITS)
    if slot is None:
        return None
    if slot.belt:
        dtype, shape = binding.describe(tensor)
        return slot if (DTYPES.get(dtype), shape, 0) == (slot.dtype, slot.shape, slot.signature) else None
    if slot.arithmetic is None:
        dtype, shape = binding.describe(tensor)
        if (DTYPES.get(dtype), shape) != (slot.dtype, slot.shape):
            return None
        by = 1.0 / session.size if op == Average else 1.0
        slot.arithmetic = _Sum(binding, slot, session.local_rank, by, tensor)
    return slot if slot.arithmetic.fits(tensor) else None


def _carry(
    world: World, slots: Slots, slot: Slot, binding: Binding, tensors: Sequence[Any],
    targets: Sequence[Any] | None, key: str, op: int,
) -> list[Any] | None:  # fmt: skip
    """Reduce tensors over the belt into new ones, or into the targets; None if a rank does not come."""
    outputs = targets
    if outputs is None:
        outputs = [binding.empty(binding.describe(tensor)[1], tensor) for tensor in tensors]
    elif all(target is tensor for target, tensor in zip(outputs, tensors)):
        outputs = tensors
    load = _load(binding, tensors, outputs, 1.0 / world.session.size if op == Average else 1.0)
    if load is None:
        slots.close(key)
        return None
    return list(outputs) if slots.carry(key, slot, load) else None


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

    if _device_path is not None and tensors and _device_path.holds(tensors[0]):
        handle = _device_path.broadcast(
            world, tensors, targets, root_rank, name, process_set, then, by_host
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
    staged = _Staged(world, binding, tensors, as_bytes=len(tensors) > 1)
    if is_root:
        staged.fill()
    if len(tensors) > 1:
        operation.explain(staged.signature, [binding.describe(tensor) for tensor in tensors])
    operation.request(
        constants.BROADCAST, name, staged.dtype, staged.shape, staged.block,
        True, root=root_rank, prescale=float(1 + staged.signature),
    )  # fmt: skip

    def finish(_: Sequence[Any]) -> list[Any]:
        if targets is None:
            return then(staged.load())
        return then(targets if is_root and targets is tensors else staged.load_into(targets))

    return operation.launch(finish)


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

    targets: memory that a path of devices may use for the results.
    """
    world = basics.world()
    names = _members(world.name(kind, name, process_set.group()), len(tensors))

    def alone(i: int) -> int:
        return _allgather_by_host(world, binding, [tensors[i]], [names[i]], process_set, first)

    if _device_path is not None and tensors and _device_path.holds(tensors[0]):
        handle = _device_path.allgather(world, tensors, targets, names, process_set, then, alone)
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
    for name, staged in zip(names, _stage(world, binding, [[tensor] for tensor in tensors])):
        operation.request(constants.ALLGATHER, name, staged.dtype, staged.shape, staged.block, False)
    return operation.launch(lambda results: then(_with_rows(binding, results, tensors)))


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
    """Send splits[i] rows to rank i: (tensor of the rows received, their number by rank).

    wrong: why the caller could make nothing of the splits it was given. target: memory that a path of devices
    may use for the result. received: how many rows come from each rank, if the caller knows.
    """
    world = basics.world()
    group = process_set.group()
    members = process_set.size()
    shape = binding.describe(tensor)[1]
    operation = Operation(world, group)
    if not shape:
        splits = []  # the engine sends all ranks that error
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
        staged = _Staged(world, binding, [tensor])
        staged.fill()
        operation.request(
            constants.ALLTOALL, name, staged.dtype, staged.shape, staged.block, False, splits=splits
        )
        return operation.launch(lambda results: then(_with_rows(binding, results, [tensor])[0]))

    if _device_path is not None and shape and not operation.wrong and _device_path.holds(tensor):
        expected = splits if received is None else received  # the same as it sends, without better knowledge
        handle = _device_path.alltoall(
            world, tensor, target, splits, expected, name, process_set, then, by_host
        )
        if handle is not None:
            return handle
    return by_host()


def _dealt(
    operation: Operation, splits: Sequence[int], rows: int, members: int, wrong: str = ""
) -> list[int]:
    """Return splits for the engine. If they do not fit, it sends all ranks an error."""
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
    """Reduce tensors and keep this rank's share of the rows, the first ranks one more: a list of tensors.

    targets: memory that a path of devices may use for the results.
    """
    if op not in range(Average, LogicalXor + 1):
        raise ValueError(f"unknown reduction {op}")
    world = basics.world()
    names = _members(world.name("reducescatter", name, process_set.group()), len(tensors))

    def by_host(some: Sequence[Any], names: Sequence[str], then: Callable[[Any], Any]) -> int:
        return _reducescatter_by_host(
            world, binding, some, names, op, prescale, postscale, process_set, then
        )

    if _device_path is not None and tensors and _device_path.holds(tensors[0]):
        handle = _device_path.reducescatter(
            world, tensors, targets, names, op, prescale, postscale, process_set, then,
            lambda i: by_host([tensors[i]], [names[i]], first),
        )  # fmt: skip
        if handle is not None:
            return handle
    return by_host(tensors, names, then)


def _reducescatter_by_host(
    world: World, binding: Binding, tensors: Sequence[Any], names: Sequence[str], op: int, prescale: float,
    postscale: float, process_set: ProcessSet, then: Callable[[Any], Any],
) -> int:  # fmt: skip
    operation = Operation(world, process_set.group())
    for name, staged in zip(names, _stage(world, binding, [[tensor] for tensor in tensors])):
        operation.request(
            constants.REDUCESCATTER, name, staged.dtype, staged.shape, staged.block, False,
            op=op, prescale=prescale, postscale=postscale,
        )  # fmt: skip

    def finish(results: Sequence[Any]) -> Any:
        if op not in (Average, Sum):  # only now: ranks with another reduction must get this one
            raise ValueError("Reducescatter currently only supports AVERAGE and SUM.")
        return then([out for out, _ in _with_rows(binding, results, tensors)])

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
    """Reduce a tensor over the ranks for one of them: a new tensor there, None elsewhere."""
    if op == Adasum or op not in range(Average, LogicalXor + 1):
        raise ValueError(f"there is no reduction {op} for one rank")
    world = basics.world()
    group = process_set.group()
    is_root = _is_root(world, root_rank, process_set)
    operation = Operation(world, group)
    staged = _Staged(world, binding, [tensor])
    staged.fill()
    operation.request(
        constants.REDUCE, world.name("reduce", name, group), staged.dtype, staged.shape, staged.block, False,
        op=op, root=root_rank, prescale=prescale, postscale=postscale,
    )  # fmt: skip
    return operation.launch(
        lambda results: then(_with_rows(binding, results, [tensor])[0][0] if is_root else None)
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
    """Join tensors along the first dimension for one of the ranks: a new tensor there, None elsewhere."""
    world = basics.world()
    group = process_set.group()
    is_root = _is_root(world, root_rank, process_set)
    operation = Operation(world, group)
    staged = _Staged(world, binding, [tensor])
    staged.fill()
    operation.request(
        constants.GATHER, world.name("gather", name, group), staged.dtype, staged.shape, staged.block, False,
        root=root_rank,
    )  # fmt: skip
    return operation.launch(
        lambda results: then(_with_rows(binding, results, [tensor])[0][0] if is_root else None)
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
    """Distribute the root's rows, splits[i] of them to rank i, or all evenly: a new tensor.

    Of the other ranks' tensors only the type and the shape of a row count.
    """
    world = basics.world()
    group = process_set.group()
    is_root = _is_root(world, root_rank, process_set)
    shape = binding.describe(tensor)[1]
    options: dict[str, Any] = {"root": root_rank}
    operation = Operation(world, group)
    if is_root and splits is not None:
        options["splits"] = _dealt(operation, splits, shape[0] if shape else 0, process_set.size())
    staged = _Staged(world, binding, [tensor if is_root or not shape else tensor[:0]])
    staged.fill()
    operation.request(
        constants.SCATTER, world.name("scatter", name, group), staged.dtype, staged.shape, staged.block,
        False, **options,
    )  # fmt: skip
    return operation.launch(lambda results: then(_with_rows(binding, results, [tensor])[0][0]))


def send(
    binding: Binding, tensor: Any, rank: int, *, name: str | None = None, then: Callable[[Any], Any] = _as_is
) -> int:
    """Send a tensor to a rank, which calls recv(): the tensor."""
    world = basics.world()
    _check_peer(world, rank)
    operation = Operation(world, 0)
    staged = _Staged(world, binding, [tensor])
    staged.fill()
    operation.request(
        constants.SEND, world.name(f"send.{world.session.rank}.{rank}", name), staged.dtype, staged.shape,
        staged.block, False, root=rank,
    )  # fmt: skip
    return operation.launch(lambda _: then(tensor))


def recv(
    binding: Binding, tensor: Any, rank: int, *, name: str | None = None, then: Callable[[Any], Any] = _as_is
) -> int:
    """Overwrite a tensor by one of the same type and shape, which a rank passes to send(): the tensor."""
    world = basics.world()
    _check_peer(world, rank)
    operation = Operation(world, 0)
    staged = _Staged(world, binding, [tensor])
    operation.request(
        constants.RECV, world.name(f"send.{rank}.{world.session.rank}", name), staged.dtype, staged.shape,
        staged.block, True, root=rank,
    )  # fmt: skip
    return operation.launch(lambda _: then(staged.load_into([tensor])[0]))


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
    """Return when all ranks have called it, and which rank was the last.

    A rank calls it when it has no more data. Until then the allreduces of the others go on with zeros for it,
    and an average still divides by the number of all ranks; other operations fail.

    Before its first step it also takes part in what optimizers agree on then, in the order in which it made
    them: if there are several, ranks with data take their first steps in that order.
    """
    world = basics.world()
    if any(attendant.due() for attendant in _living()):
        gc.collect()  # so that all ranks find the same objects: one may still hold what its script dropped
    begun = [attendant.begin() for attendant in _living() if attendant.due()]
    operation = Operation(world, 0)
    operation.request(constants.JOIN, "join", constants.UINT8, (), None, False)
    last = int(world.synchronize(operation.launch(lambda results: results[0].rows[0])))
    for finish in begun:
        finish()
    return last


class Attendant(Protocol):
    """An agreement of all ranks that a rank which joins before its first batch must not miss."""

    def due(self) -> bool:
        """Report whether this rank has not taken part yet."""

    def begin(self) -> Callable[[], None]:
        """Take part without waiting for others; the returned function waits."""


_attendants: list[weakref.ref[Attendant]] = []


def before_join(attendant: Attendant) -> None:
    """Make join() take part, as long as the attendant lives."""
    _attendants[:] = [ref for ref in _attendants if ref() is not None]
    _attendants.append(weakref.ref(attendant))


def _living() -> Iterator[Attendant]:
    return (attendant for attendant in (ref() for ref in _attendants) if attendant is not None)


def _with_rows(
    binding: Binding, results: Sequence[Any], likes: Sequence[Any]
) -> list[tuple[Any, tuple[int, ...]]]:
    return [
        (binding.load(result.view or memoryview(b""), result.shape, like), result.rows)
        for result, like in zip(results, likes)
    ]
