"""Messages between a rank and its daemon: one datagram each, little-endian, no padding.

The layouts are pinned by testdata/rankproto.txt, which the daemon's tests read too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Union

from .arena import Block
from .constants import (
    ADD_GROUP,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    ITEMSIZE,
    JOIN,
    MAX_DIMS,
    MAX_NAME,
    PEEK,
    RECV,
    REDUCE,
    REDUCESCATTER,
    REMOVE_GROUP,
    SCATTER,
)
from .errors import InvalidArgument

MAGIC = b"GORUNRK1"

# What follows, to "end table", is written by go generate ./worker/session/codec.
# begin table: messages
HELLO = 1  # in refusals only
ALLOC = 2
SUBMIT = 3
RELEASE = 4
FREE = 5
BYE = 6
ENV = 7
SLOTS = 8  # both ways
WAKE = 9  # from the daemon
TRAFFIC = 10  # both ways
SHOW = 11  # from the daemon
HIDE = 12  # from the daemon
KEPT = 13
BATCH = 14
WELCOME = 65  # this one and those below are from the daemon
REGION = 66
FAIL = 67
COMPLETE = 68
GOODBYE = 69
GONE = 70
CHANGED = 71
COMPLETED = 72
# end table
# begin table: flags
VERSION = 1  # of the protocol
COMPANION = 1  # flag of HELLO: the process has a session already
NO_REGION = 4294967295  # the number of no region
SLOTS_THERE = 2  # flag of WELCOME: there are slots
BATCH_TAKEN = 4  # flag of WELCOME: the daemon understands BATCH
TAKES_SLOT = 128  # added to SUBMIT's kind: the rank would take a slot
TAKES_WIDE = 128  # added to SUBMIT's number of dimensions: also a wide slot
TAKES_BELT = 64  # added to SUBMIT's number of dimensions: also a slot on the belt
BELT_THERE = 8  # flag of WELCOME: there is a belt
WIRE_BITS = 4  # bits of SUBMIT's reduction; those above are the coding
# end table

_HELLO = struct.Struct("<8sIIII32s8x")
_ALLOC = struct.Struct("<IIQ")
_SUBMIT = struct.Struct("<IIBBBBiIIIIIddQQQQ")
_PAIR = struct.Struct("<II")
_WELCOME = struct.Struct("<IIIiiiiiiII16s")
_REGION = struct.Struct("<IIIIQ")
_FAIL = struct.Struct("<IIIII")
_COMPLETE = struct.Struct("<IIIIQQIIIIQ")
_GONE = struct.Struct("<IIII")
_CHANGED = struct.Struct("<IIQ")
_TYPE = struct.Struct("<I")
_HEAD = struct.Struct("<IIII")
_OFFSET = struct.Struct("<16xQ")
_SLOTS = struct.Struct("<IIQ")
_FLAGS = 44  # where the flags of COMPLETE are
_DIMS = tuple(struct.Struct(f"<{n}q") for n in range(MAX_DIMS + 1))


class HostsChanged(NamedTuple):
    """The world could be another one: hosts went (1), came (2) or both. The stamp only grows."""

    flags: int
    stamp: int


class Welcome(NamedTuple):
    """The world is complete; this is the rank's place in it."""

    version: int
    epoch: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    flags: int
    hosts: int
    job: bytes


class NewRegion(NamedTuple):
    """The answer to ALLOC; the region's descriptor comes with it."""

    request: int
    region: int
    nbytes: int


class Refusal(NamedTuple):
    """An ALLOC or SUBMIT that was refused on the spot."""

    number: int  # request or handle
    what: int  # type of the refused message
    code: int
    text: str


class Completion(NamedTuple):
    """The end of an operation."""

    handle: int
    code: int
    region: int
    offset: int
    nbytes: int
    flags: int  # 1: the region's descriptor comes with the message; other bits: see took()
    region_bytes: int
    dims: tuple[int, ...]
    rows: tuple[int, ...]
    text: str


class SharedSlots(NamedTuple):
    """The answer to slots(); the descriptor of the memory comes with it."""

    nbytes: int


class WakeUp(NamedTuple):
    """A rank has left the slots."""


class Farewell(NamedTuple):
    """The answer to BYE."""


class WorldGone(NamedTuple):
    """The world ended; every open handle fails with this."""

    code: int
    text: str


Message = Union[
    Welcome, NewRegion, Refusal, Completion, SharedSlots, WakeUp, Farewell, WorldGone, HostsChanged
]  # fmt: skip


def hello(rank: int, pid: int, token: bytes, flags: int = 0) -> bytes:
    """Encode the first message of a session. flags: COMPANION, if this process has another session."""
    return _HELLO.pack(MAGIC, VERSION, rank, pid, flags, token)


def alloc(request: int, nbytes: int) -> bytes:
    """Encode the request for a region."""
    return _ALLOC.pack(ALLOC, request, nbytes)


def release(handle: int) -> bytes:
    """Encode that the result of handle is no longer read."""
    return _PAIR.pack(RELEASE, handle)


def free(region: int) -> bytes:
    """Encode that a region is no longer used."""
    return _PAIR.pack(FREE, region)


def bye() -> bytes:
    """Encode the orderly leave."""
    return _PAIR.pack(BYE, 0)


def slots() -> bytes:
    """Encode that this rank can use slots."""
    return _PAIR.pack(SLOTS, 0)


def batch() -> bytes:
    """Encode that this rank takes several completions in one message."""
    return _PAIR.pack(BATCH, 0)


def kept() -> bytes:
    """Encode that the program has committed its state in this world."""
    return _PAIR.pack(KEPT, 0)


def env(name: str, value: str) -> bytes:
    """Encode a variable that the program set by itself."""
    return _TYPE.pack(ENV) + f"{name}={value}".encode()


REDUCES = (ALLREDUCE, REDUCESCATTER, REDUCE)


def submit(
    handle: int,
    kind: int,
    name: str,
    dtype: int,
    op: int,
    root: int,
    group: int,
    prescale: float,
    postscale: float,
    source: tuple[int, int, int],
    target: tuple[int, int, int],
    shape: Sequence[int],
    splits: Sequence[int] = (),
    takes: int = 0,
) -> bytearray:
    """Encode one operation; source and target are (region, offset, bytes). takes: TAKES_BELT, say."""
    label = name.encode()
    ndim = len(shape)
    # One call: this is the hot path, and struct.pack looks a format up at every call.
    fixed = _SUBMIT.pack(
        SUBMIT,
        handle,
        kind,
        dtype,
        op,
        ndim | takes,
        root,
        group,
        source[0],
        target[0],
        len(label),
        len(splits),
        prescale,
        postscale,
        source[1],
        source[2],
        target[1],
        target[2],
    )
    if splits:
        return bytearray(fixed + _DIMS[ndim].pack(*shape) + struct.pack(f"<{len(splits)}i", *splits) + label)
    return bytearray(fixed + _DIMS[ndim].pack(*shape) + label)


def set_handle(data: bytearray, handle: int) -> None:
    """Give an encoded operation another handle."""
    _TYPE.pack_into(data, 4, handle)


def plain(data: bytearray, length: int) -> int:
    """Return the handle if the message is a success and nothing more, the usual case; else -1."""
    if length != _COMPLETE.size:
        return -1
    kind, handle, code, region = _HEAD.unpack_from(data)
    return handle if kind == COMPLETE and code == 0 and region == NO_REGION else -1


def completed(data: bytearray, length: int) -> Iterable[tuple[int, int]]:
    """Return handles and flags of the operations that a message ends, if it ends several plainly."""
    if length < _PAIR.size or _TYPE.unpack_from(data)[0] != COMPLETED:
        return ()
    if length != _PAIR.size * (1 + _PAIR.unpack_from(data)[1]):
        raise ValueError(f"decode message of the daemon: {length} bytes of completions")
    return _PAIR.iter_unpack(memoryview(data)[_PAIR.size : length])


def slot(data: bytearray) -> int:
    """Return where the slot is that a plain() message brings, 0 for none."""
    return _OFFSET.unpack_from(data)[0]


def took(data: bytearray) -> int:
    """Return the microseconds that a plain() operation took once all ranks had submitted their part."""
    return _TYPE.unpack_from(data, _FLAGS)[0] >> 1


def decode(data: memoryview) -> Message:
    """Decode a message of the daemon; ValueError if it is none."""
    try:
        return _decode(data)
    except (struct.error, UnicodeDecodeError) as e:
        raise ValueError(f"decode message of the daemon: {e}") from None


def _decode(data: memoryview) -> Message:
    (kind,) = _TYPE.unpack_from(data)
    if kind == COMPLETE:
        _, handle, code, region, offset, nbytes, ndim, nrows, text, flags, size = _COMPLETE.unpack_from(data)
        end = _COMPLETE.size + 8 * (ndim + nrows)
        _expect(data, end + text)
        numbers = struct.unpack_from(f"<{ndim + nrows}q", data, _COMPLETE.size)
        reason = str(data[end:], "utf-8") if text else ""
        dims, rows = numbers[:ndim], numbers[ndim:]
        return Completion(handle, code, region, offset, nbytes, flags, size, dims, rows, reason)
    if kind == WELCOME:
        _expect(data, _WELCOME.size)
        return Welcome(*_WELCOME.unpack(data)[1:])
    if kind == REGION:
        _expect(data, _REGION.size)
        _, request, region, _, nbytes = _REGION.unpack(data)
        return NewRegion(request, region, nbytes)
    if kind == FAIL:
        _, number, what, code, text = _FAIL.unpack_from(data)
        _expect(data, _FAIL.size + text)
        return Refusal(number, what, code, str(data[_FAIL.size :], "utf-8"))
    if kind == SLOTS:
        _expect(data, _SLOTS.size)
        return SharedSlots(_SLOTS.unpack(data)[2])
    if kind == WAKE:
        _expect(data, _PAIR.size)
        return WakeUp()
    if kind == GOODBYE:
        _expect(data, _PAIR.size)
        return Farewell()
    if kind == GONE:
        _, code, text, _ = _GONE.unpack_from(data)
        _expect(data, _GONE.size + text)
        return WorldGone(code, str(data[_GONE.size :], "utf-8"))
    if kind == CHANGED:
        _expect(data, _CHANGED.size)
        _, flags, stamp = _CHANGED.unpack_from(data)
        return HostsChanged(flags, stamp)
    raise ValueError(f"decode message of the daemon: unknown type {kind}")


def _expect(data: memoryview, length: int) -> None:
    if len(data) != length:
        raise ValueError(f"decode message of the daemon: {len(data)} bytes instead of {length}")


def check(
    kind: int,
    name: str,
    dtype: int,
    shape: Sequence[int],
    src: Block | None,
    dst: Block | None,
    splits: Sequence[int] | None,
) -> int:
    """Refuse what the daemon would refuse, while the stack still shows the caller.

    Returns the bytes of a tensor of that type and shape.
    """
    if not ALLREDUCE <= kind <= PEEK:
        raise InvalidArgument(f"submit {name}: unknown kind of operation {kind}")
    if not name or (len(name) * 4 > MAX_NAME and len(name.encode()) > MAX_NAME):
        raise InvalidArgument(f"submit operation: a name has 1 to {MAX_NAME} bytes, not {len(name.encode())}")
    if splits is not None and kind not in (ALLTOALL, SCATTER, ADD_GROUP, ALLREDUCE):
        raise InvalidArgument(f"submit {name}: only alltoall and scatter have splits")
    if kind in (BARRIER, ADD_GROUP, REMOVE_GROUP, JOIN, PEEK):
        if src is not None or dst is not None or shape:
            raise InvalidArgument(f"submit {name}: this operation has no tensor")
        return 0
    nbytes = ITEMSIZE.get(dtype, 0)
    if nbytes == 0:
        raise InvalidArgument(f"submit {name}: unknown element type {dtype}")
    if len(shape) > MAX_DIMS:
        raise InvalidArgument(f"submit {name}: {len(shape)} dimensions, at most {MAX_DIMS} are possible")
    for n in shape:
        if n < 0:
            raise InvalidArgument(f"submit {name}: negative dimension in shape {tuple(shape)}")
        nbytes *= n
    sends = kind not in (BROADCAST, RECV)
    if (src is not None and src.nbytes < nbytes) or (src is None and nbytes and sends):
        raise InvalidArgument(f"submit {name}: shape {tuple(shape)} needs a source of {nbytes} bytes")
    if kind in (ALLREDUCE, BROADCAST, RECV):
        if (dst is not None and dst.nbytes < nbytes) or (dst is None and nbytes):
            raise InvalidArgument(f"submit {name}: shape {tuple(shape)} needs a target of {nbytes} bytes")
    elif dst is not None:
        raise InvalidArgument(f"submit {name}: this operation has no target")
    return nbytes
