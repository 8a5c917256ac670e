"""Large allreduces that all ranks of one host call in the same order, and carry out over the belt."""

from __future__ import annotations

import ctypes
import math
import zlib
from typing import Any

from gorun import basics, constants, errors
from gorun.bindings import DTYPES, Binding
from gorun.collectives import Average, Sum
from gorun.exceptions import HorovodInternalError
from gorun.session import Request
from gorun.staging import Staged
from gorun.world import Operation, World

_LEAST, _MOST = 64 << 10, 1 << 30  # bytes of a tensor on the belt
_SUMS = frozenset(DTYPES[name] for name in ("float32", "float64", "int32", "uint32", "int64", "uint64"))
_AVERAGES = frozenset((constants.FLOAT32, constants.FLOAT64))


class Turns:
    """Where the ranks of a world on one host meet for large allreduces, which all call in the same order.

    A meeting belongs to no tensor, so it serves tensors of any size. Each rank brings a mark of the operation
    it came for. If the marks differ, the daemon finds out what is wrong. From then on, or once a rank cannot
    come, the daemon carries out all of them.
    """

    def __init__(self, world: World, binding: Binding, name: str) -> None:
        self._world, self._binding = world, binding
        self._key = f"allreduce.{name}"
        self._opened = False
        self._closed = False
        self.carried = 0  # how many

    def suit(self, tensor: Any, op: int) -> bool:
        """Report whether carry() suits an allreduce. In a correct program all ranks get the same answer."""
        if self._closed:
            return False
        dtype, shape = self._binding.describe(tensor)
        number = DTYPES.get(dtype)
        if number not in (_AVERAGES if op == Average else _SUMS if op == Sum else ()):
            return False
        return _LEAST < math.prod(shape) * constants.ITEMSIZE[number] <= _MOST

    def carry(self, tensor: Any, op: int, name: str, seconds: float) -> bool:
        """Reduce a tensor in place: True, or False if the daemon has to. One thread may call this.

        Raise TimeoutError if the others do not come within so many seconds.
        """
        dtype, shape = self._binding.describe(tensor)
        try:
            if not self._opened:
                self._open(seconds)
            # For this one there is no slot.
            request = Request(constants.ALLREDUCE, self._key, constants.BOOL, (0,))
            mark = 0
            if self._binding.takes(tensor, dtype, shape) and self._world.timeline is None:
                staged = Staged(self._binding, [tensor], [tensor])
                request = Request(
                    constants.ALLREDUCE, self._key, staged.dtype, shape, op=op, **staged.options
                )
                mark = zlib.crc32(f"{name} {dtype} {shape} {op}".encode())
            self._closed = not self._world.session.turn(request, mark, seconds)
            self.carried += not self._closed
            return not self._closed
        except errors.GorunError as error:
            raise HorovodInternalError(str(error)) from error

    def _open(self, seconds: float) -> None:
        """Have the daemon give the meeting its slot on the belt. Raise TimeoutError as carry() does."""
        self._opened = True
        memory = (ctypes.c_ubyte * (_LEAST + 4))()
        place = ctypes.addressof(memory)
        operation = Operation(self._world, 0)
        operation.prepare(
            constants.ALLREDUCE, self._key, constants.UINT32, (len(memory) // 4,), None,
            {"source": place, "target": place, "nbytes": len(memory), "op": Sum},
        )  # fmt: skip
        launch = operation.launch_now if self._world.timeline is None else operation.launch
        handle = launch(lambda _: memory)
        if not self._world.attend(handle, seconds):
            self._world.give_up(handle)
            raise TimeoutError
        self._world.synchronize(handle)


def turns(binding: Binding, name: str) -> Turns | None:
    """Return where ranks meet for large allreduces; None if they are not all on one host, or cannot."""
    world = basics.world()
    return Turns(world, binding, name) if world.session.has_belt else None
