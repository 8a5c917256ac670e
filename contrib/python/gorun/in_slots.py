"""Allreduces that the ranks of one host carry out by themselves, in slots or on the belt.

worker/session/codec/PROTOCOL.md describes these. Where a tensor, a name or a rank does not suit that, the
daemon carries an allreduce out, as in gorun.collectives.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

from gorun import basics, constants, errors
from gorun.bindings import DTYPES, Binding, element_type, on_device
from gorun.collectives import Average, Sum, allreduce, allreduce_one
from gorun.exceptions import HorovodInternalError
from gorun.layout import pack
from gorun.message import WIRE_BITS
from gorun.process_sets import ProcessSet
from gorun.slot import Slot, Slots, suits
from gorun.slot_table import MAX_BELT_BYTES, MAX_SLOT_BYTES
from gorun.world import Operation, World

try:
    from gorun import sums
except ImportError:  # frameworks run without NumPy
    sums = None  # type: ignore[assignment]


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
    if not on_device(tensor):
        slots = _slots(world, binding, name, prescale, postscale, process_set)
    if slots is None:
        handle = allreduce_one(binding, tensor, target, name, op, prescale, postscale, process_set)
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
        handle = allreduce_one(binding, tensor, target, name, op, prescale, postscale, process_set, slot=True)
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
    if not tensors or not on_device(tensors[0]):
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


class Turns:
    """Where the ranks of a world on one host meet for large allreduces, which all call in the same order.

    A meeting belongs to no tensor, so it serves tensors of any size. Each rank brings a mark of the operation
    it came for. If the marks differ, the daemon finds out what is wrong. From then on, or once a rank cannot
    come, the daemon carries out all of them.
    """

    def __init__(self, world: World, slots: Slots, binding: Binding, name: str) -> None:
        self._world, self._slots, self._binding, self._name = world, slots, binding, name
        self._key = f"allreduce.{name}"
        self._opened = False
        self._closed = False

    def suit(self, tensor: Any, op: int) -> bool:
        """Report whether carry() suits an allreduce. In a correct program all ranks get the same answer."""
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
        handle = operation.launch(lambda _: None)
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


def _slots(
    world: World, binding: Binding, name: str | None, prescale: float, postscale: float,
    process_set: ProcessSet,
) -> Slots | None:  # fmt: skip
    """Return the slots, if such an allreduce can use one."""
    possible = name is not None and prescale == postscale == 1.0 and binding.adds and world.timeline is None
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
