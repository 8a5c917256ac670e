"""What a rank needs from its host's daemon: shared memory, and operations by name.

``Session.connect`` returns a session with the daemon that started this rank or, outside of a job, in a world
of one. It belongs to the process that opened it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from . import errors
from .constants import (
    ADD_GROUP,
    ALLREDUCE,
    BROADCAST,
    ITEMSIZE,
    MAX_DIMS,
    MAX_NAME,
    PEEK,
    RECV,
    REDUCE,
    REDUCESCATTER,
    REMOVE_GROUP,
)
from .counters import counters
from .library import (
    BYTES,
    COUNT,
    COUNTS,
    DATA,
    HANDLE,
    MET,
    ROWS,
    STAYS,
    TENSOR,
    TOOK,
    TURN,
    UNFINISHED,
    Ticket,
    library,
    memory,
    pack,
)

__all__ = ["Block", "HostsChanged", "Request", "Result", "Session", "Ticket"]

_INPLACE = (ALLREDUCE, BROADCAST, RECV)


class HostsChanged(NamedTuple):
    """The world could be another one: hosts went (1), came (2) or both. The stamp only grows."""

    flags: int
    stamp: int


class Region:
    """A mapping that blocks lie in. release is called before it is unmapped."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.release: Callable[[], object] | None = None


class Block:
    """A piece of memory that is shared with the daemon.

    ``view`` is its memory, writable bytes. ``free`` gives it back: nothing may use the view, and no operation
    may be in flight on it, after that. It stays when the world ends.
    """

    def __init__(
        self, place: Any, nbytes: int, free: Callable[[int], object] | None,
        home: Callable[[int], Region] | None = None,
    ) -> None:  # fmt: skip
        self._place, self._free, self._home = place, free, home
        self.nbytes = nbytes
        self.address = place[0]
        self.view = memory(self.address, nbytes)
        self._whole: Block | None = None

    def slice(self, offset: int, nbytes: int) -> Block:
        """Return a part of the block as a block of its own, which free() ignores."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"slice block: [{offset}, {offset + nbytes}) of {self.nbytes} bytes")
        part = Block((self.address + offset,), nbytes, None, self._home)
        part._whole = self
        return part

    def home(self) -> Region:
        """Return the region of the block, which must not be free."""
        if self._free is None or self._home is None:
            raise ValueError("the block is free, or a part of another")
        return self._home(self.address)

    def free(self) -> None:
        """Return the memory. A second call does nothing."""
        free, self._free = self._free, None
        if free is not None:
            free(self.address)

    __del__ = free


class Result:
    """The end of an operation.

    ``view`` is the result of operations whose size a rank cannot know beforehand, read-only bytes that
    all ranks of the host share: call ``release`` when they are no longer needed. It is None for
    operations whose result is in the caller's own memory. ``rows`` is what each rank contributed to
    the first dimension. ``took`` is for how many nanoseconds it ran once all ranks had come, as far as known.
    """

    __slots__ = ("_release", "rows", "shape", "took", "view")

    def __init__(
        self,
        shape: tuple[int, ...] = (),
        rows: tuple[int, ...] = (),
        view: memoryview | None = None,
        release: Callable[[], object] | None = None,
        took: int = 0,
    ) -> None:
        self.view = view
        self.shape = shape
        self.rows = rows
        self.took = took
        self._release = release

    def release(self) -> None:
        """Give the shared memory back; nothing may look at it after that. A second call does nothing."""
        release, self._release = self._release, None
        self.view = None
        if release is not None:
            release()


class Request:
    """An operation that is to be submitted.

    source and target are addresses of nbytes each, 0 for none; the target is for allreduce, broadcast and
    recv, the other kinds bring their result. pieces replaces both: address of a source, address of its
    target, bytes, and so on. follows: FOLLOWING to begin, or fail, with the last of a submission, which is
    LEADING.
    """

    def __init__(
        self, kind: int, name: str, dtype: int, shape: Sequence[int], source: int = 0, target: int = 0,
        nbytes: int = 0, **options: Any,
    ) -> None:  # fmt: skip
        self.kind, self.name, self.dtype, self.shape = kind, name, dtype, tuple(shape)
        self.source, self.target, self.nbytes = source, target, nbytes
        self.options = options  # op, root, prescale, postscale, group, splits, pieces, follows, wire

    def check(self) -> None:
        """Refuse what the library cannot see, or would refuse only after other requests."""
        name, shape = self.name, self.shape
        if not name or (len(name) * 4 > MAX_NAME and len(name.encode()) > MAX_NAME):
            raise errors.InvalidArgument(
                f"submit operation: a name has 1 to {MAX_NAME} bytes, not {len(name.encode())}"
            )
        if len(shape) > MAX_DIMS:
            raise errors.InvalidArgument(
                f"submit {name}: {len(shape)} dimensions, at most {MAX_DIMS} are possible"
            )
        needed = ITEMSIZE.get(self.dtype, 0)
        for n in shape:
            if n < 0:
                raise errors.InvalidArgument(f"submit {name}: negative dimension in shape {shape}")
            needed *= n
        if needed > self.nbytes and (self.source or self.target):
            raise errors.InvalidArgument(f"submit {name}: shape {shape} needs memory of {needed} bytes")
        if self.target and self.kind not in _INPLACE:
            raise errors.InvalidArgument(f"submit {name}: this operation has no target")


class Session:
    """This rank's place in the world and its operations in flight, by libgorun. Thread-safe."""

    wire = 0  # how sums of floats travel between hosts, as the rank protocol numbers it

    def __init__(self) -> None:
        self._library = library()
        self._pid = os.getpid()
        self._closed = False
        self._regions: dict[int, Region] = {}
        place = (ctypes.c_int64 * 9)()
        if code := self._library.join(place):
            raise self._error(code)
        self.rank, self.size, self.local_rank, self.local_size = place[:4]
        self.cross_rank, self.cross_size, self.epoch, self._shared, self.has_belt = place[4:]
        counters.begin()

    @staticmethod
    def connect() -> Session:
        """Open the session that the environment describes; waits until the world is complete."""
        return Session()

    def _error(self, code: int) -> Exception:
        text = self._library.error()
        if os.getpid() != self._pid:
            return errors.GorunError(
                "a forked process cannot use its parent's session: use the start method 'spawn'"
            )
        if self._closed:
            return errors.Shutdown("the session is closed")
        if code == UNFINISHED:
            return TimeoutError(text)
        if code == errors.MEMORY:
            return MemoryError(text)
        if hasattr(self, "rank") and not self._library.joined():
            return errors.Shutdown(text)
        return errors.error(code, text)

    def alloc(self, nbytes: int) -> Block:
        """Return a block that operations can read and write. MemoryError if there is no more."""
        if nbytes < 0:
            raise ValueError(f"allocate memory: negative size {nbytes}")
        place = (ctypes.c_int64 * 1)()
        try:
            if code := self._library.alloc(nbytes, place):
                raise self._error(code)
            return Block(place, nbytes, self._library.free, self._home)
        except BaseException:
            if place[0]:
                self._library.free(place[0])
            raise

    def _home(self, address: int) -> Region:
        place = (ctypes.c_int64 * 2)()
        if code := self._library.pin(address, place):
            raise self._error(code)
        return self._regions.setdefault(place[0], Region(*place))

    def _packed(self, request: Request, ticket: Ticket, **how: Any) -> bytes:
        ticket.kind, ticket.shape = request.kind, request.shape
        if request.kind in (ALLREDUCE, REDUCESCATTER, REDUCE):
            how.setdefault("wire", self.wire)
        return pack(
            ticket, request.kind, request.name, request.dtype, request.shape, request.source, request.target,
            **{**how, **request.options},
        )  # fmt: skip

    def start(self, requests: Sequence[Request], tickets: Sequence[Ticket]) -> None:
        """Submit operations, all or none.

        Their memory may neither be changed nor freed before wait. Raise Busy where a name is in flight. Only
        the end of the session, which cannot be known before, fails halfway: tickets tell what was submitted.
        """
        for request in requests:
            request.check()
        packed = b"".join(map(self._packed, requests, tickets))
        if code := self._library.start(packed, len(packed)):
            raise self._error(code)

    def start_now(self, request: Request, ticket: Ticket) -> bool:
        """Submit an allreduce that the caller waits for at once. Report whether it has ended."""
        return self.repeat(self._prepared(request, ticket, stays=STAYS))

    def _prepared(self, request: Request, ticket: Ticket, **how: Any) -> Callable[[], int]:
        packed = self._packed(request, ticket, **how)
        return functools.partial(self._library.start, ctypes.create_string_buffer(packed), len(packed))

    def encode(self, request: Request, ticket: Ticket, now: bool) -> Any:
        """Return what repeat() submits, again and again. now: the caller waits at once each time."""
        request.check()
        return self._prepared(request, ticket, stays=int(now))

    def aim(self, encoded: Any, address: int) -> bool:
        """Have repeat() reduce a tensor that lies elsewhere, in place. Report whether it will."""
        TENSOR.pack_into(encoded.args[0], 0, address, address)
        return True

    def repeat(self, encoded: Any) -> bool:
        """Submit what encode() has returned. Report whether it has ended."""
        code = encoded()
        if code and code != MET:
            raise self._error(code)
        return bool(code)

    def turn(self, request: Request, mark: int, seconds: float) -> bool:
        """Carry out an allreduce as one of many that all ranks make in the same order.

        Report whether it was. Raise TimeoutError if the others do not come within so many seconds.
        """
        ticket = Ticket()
        return self.repeat(self._prepared(request, ticket, stays=TURN, mark=mark, seconds=seconds))

    def has_slot(self, name: str) -> bool:
        """Report whether the ranks of this host have a slot for the allreduces of a name."""
        return bool(self._library.has_slot(name.encode()))

    def submit(
        self, kind: int, name: str, dtype: int, shape: Sequence[int], src: Block | None, dst: Block | None,
        **options: Any,
    ) -> Ticket:  # fmt: skip
        """Start one operation on blocks and return its ticket."""
        ticket = Ticket()
        source, target = (0 if block is None else block.address for block in (src, dst))
        nbytes = min(block.nbytes for block in (src, dst) if block is not None) if src or dst else 0
        self.start([Request(kind, name, dtype, shape, source, target, nbytes, **options)], [ticket])
        return ticket

    def add_group(self, ranks: Sequence[int], number: int = 0) -> int:
        """Make a group of some ranks and return its number, the same on all ranks.

        All ranks of the world take part, members or not, one group after the other in the same order. If
        there is a number, from constants.DECLARED on, only the members do, when they like.
        """
        ticket = self.submit(ADD_GROUP, "process sets", 0, (), None, None, group=number, splits=ranks)
        result = self.wait(ticket)
        group = result.rows[0]
        result.release()
        return group

    def remove_group(self, group: int) -> None:
        """Forget a group; all ranks of the world take part. What waits for a member's part fails."""
        self.wait(self.submit(REMOVE_GROUP, "process sets", 0, (), None, None, root=group))

    def senders(self, name: str) -> tuple[int, ...]:
        """Return the ranks with a send to this one that it has not received, under names that contain one."""
        result = self.wait(self.submit(PEEK, name, 0, (), None, None))
        result.release()
        return result.rows

    def attend(self, ticket: Ticket, seconds: float | None = None) -> bool:
        """Wait for the end of an operation, so long at most. Report whether wait would now return at once."""
        return bool(self._library.attend(ticket, -1.0 if seconds is None else seconds))

    def ended(self, ticket: Ticket) -> bool:
        """Wait for an operation that brings no result. Report whether it succeeded; wait() tells why not."""
        return not self._library.wait(ticket, 1)

    def wait(self, ticket: Ticket, copies: bool = True) -> Result:
        """Wait for an operation's end; raises if the operation failed.

        copies: what belongs into memory that is not the library's is brought there.
        """
        if code := self._library.wait(ticket, copies):
            raise self._error(code)
        shape = ticket.shape
        if not ticket[HANDLE]:
            return Result(shape, took=ticket[TOOK])
        rows: tuple[int, ...] = ()
        if ticket[COUNTS]:
            rows = tuple((ctypes.c_int64 * ticket[COUNT]).from_address(ticket[COUNTS]))
        if shape and ticket.kind != REDUCE:
            shape = (ticket[ROWS], *shape[1:])
        view = memory(ticket[DATA], ticket[BYTES], writable=False)
        return Result(shape, rows, view, functools.partial(self._library.release, ticket), ticket[TOOK])

    def kept(self) -> None:
        """Note that the program has committed its state in this world."""
        self._library.kept()

    def news(self) -> list[HostsChanged]:
        """Return the news about the job's hosts since the last call; does not wait for any."""
        pairs = (ctypes.c_uint64 * 64)()
        n = self._library.news(pairs, 32)
        return [HostsChanged(*pairs[2 * i : 2 * i + 2]) for i in range(n)]

    def lost(self) -> errors.GorunError | None:
        """Return why the world has ended, None if this rank knows of nothing; does not wait."""
        code = self._library.lost()
        return self._error(code) if code else None  # type: ignore[return-value]

    def ends(self, seconds: float, more: bool = True) -> list[tuple[int, int, int]]:
        """Return handle, stamp and nanoseconds of operations that have ended since the first call.

        Wait so long for the first one. more: there will be another call.
        """
        triples = (ctypes.c_int64 * (3 * 256))()
        n = self._library.ends(triples, 256 if more else 0, seconds)
        return [(handle, stamp, 1000 * took) for handle, stamp, took in zip(*[iter(triples[: 3 * n])] * 3)]

    def close(self) -> None:
        """Leave the world. Operations in flight fail; a second call does nothing."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        for region in self._regions.values():
            if region.release is not None:
                with contextlib.suppress(Exception):
                    region.release()
        if not self._shared:
            self._library.leave()
