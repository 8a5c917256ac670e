"""Tensors on GPUs that NCCL reduces where they are, in jobs with --gpu-path nccl or auto.

What NCCL lacks still goes by the host: reductions of bits, averages of integers, other element types,
process sets, and every operation that is not an allreduce or a broadcast.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gorun import basics, collectives
from gorun.constants import AVERAGE
from gorun.gpu import nccl, path, route
from gorun.gpu.group import OPS, Group, Work
from gorun.gpu.hierarchy import Hierarchy, Reduction
from gorun.process_sets import global_process_set
from gorun.torch.memory import Torch, overwrite, type_name

if TYPE_CHECKING:
    from gorun.process_sets import ProcessSet
    from gorun.world import World

_PAUSE = 1e-3  # between two looks at the end of an operation


def on_gpu(tensor: torch.Tensor) -> bool:
    """Report whether a tensor lies in memory of a GPU from data_ptr() on."""
    return tensor.is_cuda and tensor.layout is torch.strided and not tensor.is_neg()


def stream_of(tensor: torch.Tensor) -> int:
    """Return the stream to which the calling thread gives operations on a tensor."""
    return int(current_stream(tensor).cuda_stream)


def current_stream(tensor: torch.Tensor) -> torch.cuda.Stream:
    """Return that stream as torch has it."""
    return torch.cuda.current_stream(tensor.device)


def note_stream(streams: dict[int, torch.cuda.Stream], tensor: torch.Tensor) -> None:
    """Note the stream that the calling thread uses: backward may give each gradient to another one."""
    stream = current_stream(tensor)
    streams[stream.cuda_stream] = stream


def follow_streams(streams: dict[int, torch.cuda.Stream], tensor: torch.Tensor) -> None:
    """Let the current stream go on only after what those noted were given, and forget them."""
    current = current_stream(tensor)
    for number, stream in streams.items():
        if number != current.cuda_stream:
            current.wait_stream(stream)
    streams.clear()


def ordinal_of(tensor: torch.Tensor) -> int:
    """Return the number of a tensor's device."""
    return tensor.device.index or 0


def default_ordinal() -> int:
    """Return the number of the device that the calling thread uses; -1 for none."""
    return torch.cuda.current_device() if torch.cuda.is_available() else -1


def group_of(tensor: torch.Tensor, process_set: ProcessSet) -> Group | Hierarchy | None:
    """Return the group that reduces a tensor; None if it goes by the host."""
    if path.asked() == path.HOST or not on_gpu(tensor) or process_set.group() != 0:
        return None
    way = route.route(basics.world(), ordinal_of(tensor))
    return way.settle() if way.ordinal == ordinal_of(tensor) else None


def reducible(dtype: torch.dtype, op: int, *factors: float) -> bool:
    """Report whether NCCL has a reduction as gorun has it."""
    exact = not dtype.is_floating_point and (op == AVERAGE or any(factor != 1.0 for factor in factors))
    return type_name(dtype) in nccl.DATA_TYPES and op in OPS and not exact


class Ongoing:
    """An operation of a group, as World takes operations."""

    ended = False

    def __init__(
        self, world: World, work: Work | Reduction, source: torch.Tensor,
        finish: Callable[[], Any],
    ) -> None:  # fmt: skip
        self._world = world
        self._work = work
        self._source = source  # NCCL reads it until the end
        self._finish = finish
        self._polled = False

    def begun(self) -> bool:
        """Return True: it was called."""
        return True

    def polled(self) -> bool:
        """Report what over() does; the first time, False."""
        again, self._polled = self._polled, True
        return again and self.over()

    def over(self) -> bool:
        """Report whether wait() would return, or raise, at once."""
        if not self._work.over() or self._work.handle < 0:
            return self._work.over()
        return self._world.attend(self._work.handle, 0)

    def attend(self, seconds: float) -> bool:
        """Wait at most this many seconds. Report whether it has ended."""
        until = time.monotonic() + seconds
        while not self.over():
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE)
        return True

    def wait(self) -> Any:
        """Return the result, or raise why there is none."""
        if self.ended:
            return None
        try:
            if self._work.wait():
                value = self._finish()
            else:
                value = self._world.synchronize(self._work.handle)
        except Exception:
            self.ended = True
            raise
        self.ended = True
        return value

    def release(self) -> None:
        """Do nothing: the memory is torch's."""


def reduce_flat(
    world: World, group: Group | Hierarchy, flat: torch.Tensor, name: str, op: int, prescale: float,
    postscale: float, signature: int,
) -> Ongoing:  # fmt: skip
    """Start to reduce a flat tensor in place. signature: of what lies in it."""
    if prescale != 1.0:
        flat.mul_(prescale)

    def finish() -> None:
        if postscale != 1.0:
            flat.mul_(postscale)

    def by_host() -> int:
        return collectives.allreduce_by_host(
            world, Torch(), [flat], [flat], f"allreduce.{name}", op, 1.0, postscale, global_process_set
        )

    try:
        work = group.allreduce(
            f"allreduce.{name}", flat.data_ptr(), flat.data_ptr(), flat.numel(), type_name(flat.dtype), op,
            stream_of(flat), also=(signature, prescale, postscale), by_host=by_host,
        )  # fmt: skip
    except BaseException:
        if prescale != 1.0:
            flat.div_(prescale)  # it may be tried again
        raise
    return Ongoing(world, work, flat, finish)


class Path:
    """collectives.DevicePath for torch."""

    def holds(self, tensor: Any) -> bool:
        """Report whether a tensor, of any framework, is one of torch's on a GPU."""
        return isinstance(tensor, torch.Tensor) and on_gpu(tensor)

    def allreduce(
        self,
        world: World,
        tensors: Sequence[torch.Tensor],
        targets: Sequence[torch.Tensor] | None,
        name: str,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        then: Callable[[Any], Any],
        by_host: Callable[[], int],
    ) -> int | None:
        """Start to reduce tensors; None if they go by the host."""
        dtype = tensors[0].dtype
        alike = all(on_gpu(t) and t.dtype is dtype and t.device == tensors[0].device for t in tensors)
        if not alike or not reducible(dtype, op, prescale, postscale):
            return None
        if not any(tensor.numel() for tensor in tensors):
            return None  # it has no address
        group = group_of(tensors[0], process_set)
        if group is None:
            return None
        source = _flat(tensors)
        if prescale != 1.0:
            source = source * prescale
        own = targets is not None and len(tensors) == 1 and targets[0].is_contiguous()
        target = targets[0].detach().view(-1) if own and targets else torch.empty_like(source)
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        work = group.allreduce(
            name, source.data_ptr(), target.data_ptr(), source.numel(), type_name(dtype), op,
            stream_of(source), also=(shapes, prescale, postscale), by_host=by_host,
        )  # fmt: skip

        def finish() -> Any:
            if postscale != 1.0:
                target.mul_(postscale)
            return then(_spread(target, shapes, targets, own))

        return world.launch(Ongoing(world, work, source, finish))  # type: ignore[arg-type]

    def broadcast(
        self,
        world: World,
        tensors: Sequence[torch.Tensor],
        targets: Sequence[torch.Tensor] | None,
        root_rank: int,
        name: str,
        process_set: ProcessSet,
        then: Callable[[Any], Any],
        by_host: Callable[[], int],
    ) -> int | None:
        """Start to send the root's tensors to all; None if they go by the host."""
        alike = all(on_gpu(t) and t.device == tensors[0].device for t in tensors)
        some = any(tensor.numel() for tensor in tensors)
        if not alike or not some or not 0 <= root_rank < world.session.size:
            return None
        group = group_of(tensors[0], process_set)
        if not isinstance(group, Group):
            return None
        source = torch.cat([_bytes(tensor) for tensor in tensors])
        kinds = tuple((type_name(tensor.dtype), tuple(tensor.shape)) for tensor in tensors)
        work = group.broadcast(
            name, source.data_ptr(), source.data_ptr(), source.numel(), "uint8", root_rank, stream_of(source),
            also=kinds, by_host=by_host,
        )  # fmt: skip

        def finish() -> Any:
            outputs, at = [], 0
            for tensor in tensors:
                nbytes = tensor.numel() * tensor.element_size()
                piece = source[at : at + nbytes].clone()  # at an address that suits any type
                outputs.append(piece.view(tensor.dtype).view(tensor.shape))
                at += nbytes
            if targets is None:
                return then(outputs)
            for target, output in zip(targets, outputs):
                overwrite(target, output)
            return then(targets)

        return world.launch(Ongoing(world, work, source, finish))  # type: ignore[arg-type]


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors of one type as a flat one: the memory of a single one that has no gaps."""
    pieces = [tensor.detach().contiguous().view(-1) for tensor in tensors]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _spread(
    flat: torch.Tensor, shapes: Sequence[tuple[int, ...]], targets: Sequence[torch.Tensor] | None, own: bool
) -> list[torch.Tensor]:
    """Return the parts of a flat tensor, or the targets; own: it is the memory of the only one."""
    if targets is not None and own:
        return list(targets)
    sizes = [math.prod(shape) for shape in shapes]
    outputs = [piece.view(shape) for piece, shape in zip(flat.split(sizes), shapes)]
    if targets is None:
        return outputs
    for target, output in zip(targets, outputs):
        overwrite(target, output)
    return list(targets)


class _Agreement:
    """collectives.Attendant: a rank that joins before its first tensor helps to choose the path."""

    def due(self) -> bool:
        """Report whether this rank has not taken part yet."""
        return path.asked() != path.HOST and not route.begun(basics.world())

    def begin(self) -> Callable[[], None]:
        """Take part without waiting for others; the returned function waits."""
        way = route.route(basics.world(), default_ordinal())

        def finish() -> None:
            way.settle()

        return finish


_agreement = _Agreement()


def install() -> None:
    """Have collectives ask this module about tensors on GPUs, if the job wants another path than the host."""
    if path.asked() != path.HOST:
        collectives.use_device_path(Path())
        collectives.before_join(_agreement)
