"""Tensors that are reduced and moved in the memory of GPUs, in jobs whose --gpu-path is not host.

What NCCL lacks still goes through the host: reductions of bits, averages of integers, other element types,
process sets, row counts that differ between ranks, and rooted operations other than broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gorun import basics, bindings, collectives
from gorun.bindings import Call
from gorun.constants import AVERAGE, SUM
from gorun.gpu import nccl, path, route
from gorun.gpu.group import OPS, Group
from gorun.gpu.hierarchy import Hierarchy
from gorun.gpu.ipc import Ipc
from gorun.process_sets import global_process_set
from gorun.torch.memory import Torch, overwrite, type_name
from gorun.torch.ongoing import Ongoing, Together

if TYPE_CHECKING:
    from gorun.process_sets import ProcessSet
    from gorun.world import World


def on_gpu(tensor: torch.Tensor) -> bool:
    """Report whether a tensor lies in memory of a GPU from data_ptr() on."""
    plain = tensor.layout is torch.strided and not tensor.is_neg() and not tensor.is_conj()
    return tensor.is_cuda and plain


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


def group_of(tensor: torch.Tensor, process_set: ProcessSet) -> Group | Hierarchy | Ipc | None:
    """Return the group that reduces a tensor; None if it goes by the host."""
    if path.asked() == path.HOST or not on_gpu(tensor) or process_set.group() != 0:
        return None
    way = route.route(basics.world(), ordinal_of(tensor))
    return way.settle() if way.ordinal == ordinal_of(tensor) else None


def reducible(dtype: torch.dtype, op: int, *factors: float) -> bool:
    """Report whether NCCL has a reduction as gorun has it."""
    exact = not dtype.is_floating_point and (op == AVERAGE or any(factor != 1.0 for factor in factors))
    return type_name(dtype) in nccl.DATA_TYPES and op in OPS and not exact


def reduce_flat(
    world: World, group: Group | Hierarchy | Ipc, flat: torch.Tensor, name: str, op: int, prescale: float,
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
    return Ongoing(world, work, [flat], finish)


class Path:
    """bindings.DevicePath for torch."""

    def holds(self, tensor: Any) -> bool:
        """Report whether a tensor, of any framework, is one of torch's on a GPU."""
        return isinstance(tensor, torch.Tensor) and on_gpu(tensor)

    def allreduce(self, call: Call, by_host: Callable[[], int]) -> int | None:
        """Start to reduce tensors; None if they go by the host."""
        tensors, targets = call.tensors, call.targets
        dtype = tensors[0].dtype
        alike = all(t.dtype is dtype for t in tensors) and any(t.numel() for t in tensors)  # or no address
        if not alike or not reducible(dtype, call.op, call.prescale, call.postscale):
            return None
        group = _group(call)
        if group is None:
            return None
        source = _flat(tensors)
        if call.prescale != 1.0:
            source = source * call.prescale
        own = targets is not None and len(tensors) == 1 and targets[0].is_contiguous()
        target = targets[0].detach().view(-1) if own and targets else torch.empty_like(source)
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        work = group.allreduce(
            call.names[0], source.data_ptr(), target.data_ptr(), source.numel(), type_name(dtype), call.op,
            stream_of(source), also=(shapes, call.prescale, call.postscale), by_host=by_host,
        )  # fmt: skip

        def finish() -> Any:
            if call.postscale != 1.0:
                target.mul_(call.postscale)
            return call.then(_spread(target, shapes, targets, own))

        return _launched(call, Ongoing(call.world, work, [source, target], finish))

    def broadcast(self, call: Call, root_rank: int, by_host: Callable[[], int]) -> int | None:
        """Start to send the root's tensors to all; None if they go by the host."""
        tensors, targets = call.tensors, call.targets
        if not any(tensor.numel() for tensor in tensors) or not 0 <= root_rank < call.world.session.size:
            return None
        group = _group(call)
        if not isinstance(group, Group):
            return None
        source = torch.cat([_bytes(tensor) for tensor in tensors])
        kinds = tuple((type_name(tensor.dtype), tuple(tensor.shape)) for tensor in tensors)
        work = group.broadcast(
            call.names[0], source.data_ptr(), source.data_ptr(), source.numel(), "uint8", root_rank,
            stream_of(source), also=kinds, by_host=by_host,
        )  # fmt: skip

        def finish() -> Any:
            outputs, at = [], 0
            for tensor in tensors:
                nbytes = tensor.numel() * tensor.element_size()
                piece = source[at : at + nbytes].clone()  # at an address that suits any type
                outputs.append(piece.view(tensor.dtype).view(tensor.shape))
                at += nbytes
            return call.then(_placed(outputs, targets))

        return _launched(call, Ongoing(call.world, work, [source], finish))

    def allgather(self, call: Call, by_host: Callable[[int], int]) -> int | None:
        """Start to join tensors of all ranks; None if they go by the host."""
        if not all(tensor.dim() and math.prod(tensor.shape[1:]) for tensor in call.tensors):
            return None
        group = _group(call)
        if not isinstance(group, Group):
            return None
        session = call.world.session

        def start(i: int) -> Ongoing:
            tensor = call.tensors[i]
            rows, *row = tensor.shape
            source = _bytes(tensor)
            whole = _target(call, i, (rows * session.size, *row))
            source = _apart(source, whole, session.rank * source.numel())
            work = group.allgather(
                call.names[i], source.data_ptr(), whole.data_ptr(), source.numel(), "uint8",
                stream_of(tensor), also=(type_name(tensor.dtype), row), by_host=lambda: by_host(i),
            )  # fmt: skip
            return Ongoing(call.world, work, [source, whole], lambda: (whole, (rows,) * session.size))

        return _launch(call, start)

    def reducescatter(self, call: Call, by_host: Callable[[int], int]) -> int | None:
        """Start to reduce tensors for the ranks' shares of the rows; None if they go by the host."""
        session = call.world.session
        even = all(t.dim() and t.shape[0] % session.size == 0 and t.numel() for t in call.tensors)
        exact = all(reducible(t.dtype, call.op, call.prescale, call.postscale) for t in call.tensors)
        if call.op not in (AVERAGE, SUM) or not even or not exact:
            return None
        group = _group(call)
        if not isinstance(group, Group):
            return None

        def start(i: int) -> Ongoing:
            tensor = call.tensors[i]
            rows, *row = tensor.shape
            source = tensor.detach().contiguous()
            if call.prescale != 1.0:
                source = source * call.prescale
            share = _target(call, i, (rows // session.size, *row))
            source = _apart(source, share, -session.rank * share.numel() * share.element_size())
            work = group.reducescatter(
                call.names[i], source.data_ptr(), share.data_ptr(), share.numel(), type_name(tensor.dtype),
                call.op, stream_of(tensor), also=(tuple(tensor.shape), call.prescale, call.postscale),
                by_host=lambda: by_host(i),
            )  # fmt: skip

            def finish() -> torch.Tensor:
                return share.mul_(call.postscale) if call.postscale != 1.0 else share

            return Ongoing(call.world, work, [source, share], finish)

        return _launch(call, start)

    def alltoall(
        self, call: Call, splits: Sequence[int], received: Sequence[int], by_host: Callable[[], int]
    ) -> int | None:
        """Start to send rows to the ranks, and to receive some from each; None if they go by the host."""
        (tensor,) = call.tensors
        row = tuple(tensor.shape[1:])
        if not math.prod(row):
            return None
        group = _group(call)
        if not isinstance(group, Group):
            return None
        nbytes = math.prod(row) * tensor.element_size()
        source = _bytes(tensor)
        output = _target(call, 0, (sum(received), *row))
        if _overlap(source, output):
            source = source.clone()  # what arrives may be there before what leaves is read
        work = group.alltoall(
            call.names[0], source.data_ptr(), output.data_ptr(), [rows * nbytes for rows in splits],
            [rows * nbytes for rows in received], "uint8", stream_of(tensor),
            also=(type_name(tensor.dtype), row), by_host=by_host,
        )  # fmt: skip
        result = output, tuple(received)
        return _launched(call, Ongoing(call.world, work, [source, output], lambda: call.then(result)))


def _group(call: Call) -> Group | Hierarchy | Ipc | None:
    """Return the group for tensors that lie on one device; None if they go by the host."""
    first = call.tensors[0]
    if not all(on_gpu(tensor) and tensor.device == first.device for tensor in call.tensors):
        return None
    return group_of(first, call.process_set)


def _launched(call: Call, ongoing: Ongoing | Together) -> int:
    return call.world.launch(ongoing)  # type: ignore[arg-type]


def _launch(call: Call, start: Callable[[int], Ongoing]) -> int:
    """Start an operation for each tensor of a call; all of them end, also if one cannot be started."""
    parts: list[Ongoing] = []
    try:
        for i in range(len(call.tensors)):
            parts.append(start(i))
    except BaseException:
        for part in parts:
            call.world.abandon(part)  # type: ignore[arg-type]
        raise
    return _launched(call, Together(parts, call.then))


def _target(call: Call, i: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of that shape: over the memory of the i-th target, if that fits, or else a new one."""
    like = call.tensors[i]
    if call.targets is not None:
        target = call.targets[i].detach()
        if (target.dtype, target.device, target.numel()) == (like.dtype, like.device, math.prod(shape)):
            if on_gpu(target) and target.is_contiguous():
                return target.view(shape)
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors of one type as a flat one: the memory of a single one that has no gaps."""
    pieces = [tensor.detach().contiguous().view(-1) for tensor in tensors]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _apart(source: torch.Tensor, target: torch.Tensor, at: int) -> torch.Tensor:
    """Return what is sent, copied if it lies over a target, but not so many bytes from the target's start.

    There NCCL works in place. Elsewhere it may write what it has yet to read.
    """
    in_place = source.data_ptr() == target.data_ptr() + at
    return source.clone() if _overlap(source, target) and not in_place else source


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Report whether tensors without gaps share memory."""
    starts = [tensor.data_ptr() for tensor in (a, b)]
    ends = [tensor.data_ptr() + tensor.numel() * tensor.element_size() for tensor in (a, b)]
    return max(starts) < min(ends)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _spread(
    flat: torch.Tensor, shapes: Sequence[tuple[int, ...]], targets: Sequence[torch.Tensor] | None, own: bool
) -> list[torch.Tensor]:
    """Return the parts of a flat tensor, or the targets; own: it is the memory of the only one."""
    if targets is not None and own:
        return list(targets)
    sizes = [math.prod(shape) for shape in shapes]
    return _placed([piece.view(shape) for piece, shape in zip(flat.split(sizes), shapes)], targets)


def _placed(
    outputs: list[torch.Tensor], targets: Sequence[torch.Tensor] | None
) -> list[torch.Tensor]:
    """Return tensors, or the targets overwritten with them."""
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
        bindings.use_device_path(Path())
        collectives.before_join(_agreement)
