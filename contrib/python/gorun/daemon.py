"""A rank's session with the daemon of its host.

Cost of an operation: one send, one receive, at most one sleep. Threads that wait share one socket: one of
them reads, for all; the others sleep until it has read their message or stops reading.

No message is lost when KeyboardInterrupt, which can strike between any two byte codes, cuts a wait
short: receiving and keeping a message is one step in C (see _read_once), and a message that is handled twice
has the effect of one: see _once().
"""

from __future__ import annotations

import array
import itertools
import mmap
import os
import select
import socket
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TypeVar

from . import message
from . import slot as slot_module
from .arena import Arena, Block, Region
from .constants import ALLREDUCE, FLOAT32, FOLLOWS, JOIN, MAX_ANSWER, MAX_IN_FLIGHT, PEEK, SUM
from .counters import counters
from .errors import Aborted, GorunError, InvalidArgument, Shutdown, error
from .session import Result, Session
from .slot import Slots

# How long a reader polls before it sleeps. Waking a sleeping CPU takes about 40 µs, so a short wait is
# cheaper awake; a long one is not worth the CPU.
SPIN_SECONDS = 30e-6
GOODBYE_SECONDS = 5.0

# Variables that the daemon reads from the job's environment, and that a program may also set before it joins.
JOB_VARIABLES = (
    "HOROVOD_STALL_CHECK_DISABLE",
    "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
)

# Arguments of recvmsg_into, each in a tuple for map.
_DESCRIPTOR_SPACE = (socket.CMSG_SPACE(4),)
_BLOCKING = (socket.MSG_CMSG_CLOEXEC,)
_AT_ONCE = (socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT,)

_Failure = TypeVar("_Failure", GorunError, MemoryError)

_forks = 0  # the number of forks between the process that imported this module and this one


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class _Pending:
    """A request that the daemon will answer. outcome is None until then, and set once, complete."""

    __slots__ = ("encoded", "outcome", "shape", "took")

    def __init__(self, shape: tuple[int, ...] = (), encoded: _Encoded | None = None) -> None:
        self.shape = shape
        self.took = 0  # microseconds from when all ranks had submitted their part to the end
        self.encoded = encoded  # None once the daemon has answered
        self.outcome: Result | Region | Slots | message.Welcome | GorunError | MemoryError | None = None


class _Encoded:
    """A SUBMIT without its handle, and the state that the end of its operation needs."""

    __slots__ = ("blocks", "data", "group", "name", "offer", "shape")

    def __init__(self, name: str, group: int, shape: tuple[int, ...], *blocks: Block | None) -> None:
        self.name, self.group, self.shape = name, group, shape
        self.blocks = blocks  # kept alive while the daemon works on them
        self.offer: tuple[Any, ...] = ()  # the tensor that a slot for name would hold
        self.data = bytearray()


class DaemonSession(Session):
    """A session over the socket that the daemon announced in the environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._forks = _forks
        # The lock guards the fields below. It is held briefly only, and never while receiving.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sleepers = 0
        self._reader = 0  # the thread that reads, 0 for none
        self._open: dict[int, _Pending] = {}  # by handle
        self._followers: list[int] = []  # handles of operations that wait for their head
        self._requests: dict[int, _Pending] = {}
        self._welcome = _Pending()
        self._goodbye = _Pending()
        self._shared = _Pending()  # the slots
        self._results: dict[int, memoryview] = {}  # result regions seen so far, mapped read-only
        self._hosts_changed: deque[message.HostsChanged] = deque()
        self._failure: GorunError | None = None  # the error of every operation from now on
        self._closed = False
        self._sent_kept = False  # the daemon knows that something was committed in this world

        self._handles = itertools.count(1)
        self._numbers = itertools.count(1)
        self._inbox: deque[Any] = deque()  # results of recvmsg_into, at most one message
        self._done: dict[Any, Any] = {}  # the calls made for that message, and the request that it answers
        self._buffer = bytearray(MAX_ANSWER)
        self._buffers = ((self._buffer,),)
        self._arena = Arena(_weakly(self._grow), _weakly(self._shrink))
        self._spin = 0.0

        try:
            process = int(environ["GORUN_PROCESS"])
            token = bytes.fromhex(environ["GORUN_TOKEN"])
        except (KeyError, ValueError) as e:
            text = f"connect to daemon: GORUN_PROCESS and GORUN_TOKEN must come with GORUN_SOCKET: {e}"
            raise GorunError(text) from None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect("\0" + environ["GORUN_SOCKET"])
            self._socket.send(message.hello(process, os.getpid(), token, _companion()))
            welcome = self._await(self._welcome)
            for name in JOB_VARIABLES:
                if name in environ:
                    self._socket.send(message.env(name, environ[name]))
        except BaseException as e:
            self._socket.close()
            if isinstance(e, OSError):
                raise Aborted(f"connect to daemon: {e}") from None
            raise
        assert isinstance(welcome, message.Welcome)
        self.rank, self.size = welcome.rank, welcome.size
        self.local_rank, self.local_size = welcome.local_rank, welcome.local_size
        self.cross_rank, self.cross_size = welcome.cross_rank, welcome.cross_size
        self.epoch = welcome.epoch
        counters.begin()
        if self.local_size < len(os.sched_getaffinity(0)):
            self._spin = SPIN_SECONDS
        if welcome.flags & message.BATCH_TAKEN:
            self._send(message.batch())
        if welcome.flags & message.SLOTS_THERE and slot_module.possible():
            self._send(message.slots())
            self.slots = self._await(self._shared)

    # Methods for callers.

    def alloc(self, nbytes: int) -> Block:
        self._check_process()
        return self._arena.alloc(nbytes)

    def submit(
        self,
        kind: int,
        name: str,
        dtype: int,
        shape: Sequence[int],
        src: Block | None,
        dst: Block | None,
        *,
        op: int = SUM,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        group: int = 0,
        splits: Sequence[int] | None = None,
        handle: int | None = None,
        slot: bool = False,
        wire: int | None = None,
    ) -> int:
        """slot: the caller would do the next operation of this name in a slot. wire: not the session's."""
        self._check_process()
        nbytes = message.check(kind, name, dtype, shape, src, dst, splits)
        encoded = _Encoded(name, group, tuple(shape), src, dst)
        how = self.wire if wire is None else wire
        travels = op | how << message.WIRE_BITS if kind in message.REDUCES else op
        slots, flag, more = self.slots, 0, 0
        if slots is not None:
            if kind == JOIN:
                slots.turn_off()
            suits = kind == ALLREDUCE and group == 0 and slot_module.suits(dtype, op, prescale, postscale)
            belt = slots.offers_belt(nbytes)
            small = 0 < nbytes <= slot_module.MAX_SLOT_BYTES
            if slot and suits and (small or belt) and slots.offers(name):
                flag, more = message.TAKES_SLOT, message.TAKES_BELT if belt else 0
                encoded.offer = (dtype, travels, encoded.shape, nbytes, root)
        source = (message.NO_REGION, 0, 0) if src is None else (src.region, src.offset, nbytes)
        target = (message.NO_REGION, 0, 0) if dst is None else (dst.region, dst.offset, nbytes)
        encoded.data = message.submit(
            0, kind | flag, name, dtype, travels, root, group, prescale, postscale, source, target,
            shape, splits or (), more,
        )  # fmt: skip
        if handle is None:
            handle = self.reserve()
        follows = splits is FOLLOWS
        self._submit(encoded, handle, follows, kind == ALLREDUCE and bool(splits) and not follows)
        return handle

    def encode(
        self, kind: int, name: str, dtype: int, shape: Sequence[int], block: Block, *, op: int = SUM,
        root: int = 0, prescale: float = 1.0, postscale: float = 1.0, group: int = 0,
    ) -> _Encoded:  # fmt: skip
        nbytes = message.check(kind, name, dtype, shape, block, block, None)
        encoded = _Encoded(name, group, tuple(shape), block)
        place = (block.region, block.offset, nbytes)
        encoded.data = message.submit(
            0, kind, name, dtype, op | self.wire << message.WIRE_BITS, root, group, prescale, postscale,
            place, place, shape,
        )  # fmt: skip
        return encoded

    def submit_encoded(self, encoded: _Encoded, handle: int) -> None:  # type: ignore[override]
        self._submit(encoded, handle)

    def _submit(self, encoded: _Encoded, handle: int, follows: bool = False, leads: bool = False) -> None:
        if self._closed or self._forks != _forks:
            self._check_process()
        if self.slots is not None and encoded.group == 0:
            self.slots.close(encoded.name)
        if self._failure is not None:
            raise self._again(self._failure)
        if len(self._open) >= MAX_IN_FLIGHT:
            raise InvalidArgument(f"submit {encoded.name}: {MAX_IN_FLIGHT} operations are in flight already")
        message.set_handle(encoded.data, handle)
        pending = _Pending(encoded.shape, encoded)
        sent: list[int] = []
        try:
            self._open[handle] = pending
            if follows:
                self._followers.append(handle)
            # extend and map call send and keep its result without a byte code in between. What the
            # daemon has stays open, whatever happens here: it works on the memory until it has answered.
            sent.extend(map(self._socket.send, (encoded.data,)))
        except OSError as e:
            raise self._lost(e) from None
        finally:
            if not sent:
                self._open.pop(handle, None)
            elif leads:
                self._followers.clear()  # this is their head

    def reserve(self) -> int:
        handle = next(self._handles) & 0x7FFFFFFF
        while handle in self._open:
            handle = next(self._handles) & 0x7FFFFFFF
        return handle

    def has(self, handle: int) -> bool:
        return handle in self._open

    def desert(self) -> None:
        if self._followers:
            # A head without memory for its tensor, which the daemon refuses with all its followers. It may
            # not know the last of these, whose submission may have been cut short too.
            none = (message.NO_REGION, 0, 0)
            head = self.reserve()
            fields = (head, ALLREDUCE, "interrupted", FLOAT32, SUM, 0, 0, 1.0, 1.0, none, none, (1,))
            self._send(message.submit(*fields, self._followers))
            self._followers.clear()

    def room(self) -> int:
        return MAX_IN_FLIGHT - len(self._open)

    def poll(self, handle: int) -> bool:
        self._check_process()
        pending = self._open.get(handle)
        while pending is not None and pending.outcome is None and self._failure is None:
            if not self._read_once(_AT_ONCE):
                return False
        return True

    def attend(self, handle: int, seconds: float | None = None) -> bool:
        pending = self._open.get(handle)
        if pending is not None and pending.outcome is None and self._failure is None and not self._closed:
            if seconds is None:
                self._read_once(_BLOCKING, pending)
            else:
                self._stay(pending, seconds)
        return pending is None or pending.outcome is not None or self._failure is not None or self._closed

    def wait(self, handle: int) -> Result:
        self._check_process()
        pending = self._find(handle)
        try:
            result = pending.outcome
            if isinstance(result, Result):  # most have ended by now where many were begun
                counters.ran(pending.took * 1000)
            else:
                began = counters.waits()
                try:
                    result = self._await(pending)
                finally:
                    counters.waited(began, pending.took * 1000)
        except GorunError:
            self._open.pop(handle, None)
            raise
        self._open.pop(handle, None)
        assert isinstance(result, Result)
        result.took = pending.took * 1000
        return result

    def senders(self, name: str) -> tuple[int, ...]:
        handle = self.submit(PEEK, name, 0, (), None, None)
        try:
            result = self._await(self._find(handle))  # no operation, and no wait for others
        finally:
            self._open.pop(handle, None)
        assert isinstance(result, Result)
        return result.rows

    def kept(self) -> None:
        if not self._sent_kept:
            self._sent_kept = True
            self._send(message.kept())

    def news(self) -> list[message.HostsChanged]:
        while self._failure is None and self._read_once(_AT_ONCE):
            pass
        told = []
        while self._hosts_changed:
            told.append(self._hosts_changed.popleft())
        return told

    def lost(self) -> GorunError | None:
        while self._failure is None and self._read_once(_AT_ONCE):
            pass
        return None if self._failure is None else self._again(self._failure)

    def close(self) -> None:
        if self._closed or self._forks != _forks:
            return
        self._closed = True
        try:
            self._socket.send(message.bye())
            # The daemon answers even if the world is gone; a daemon that does not is not worth waiting for.
            timer = threading.Timer(GOODBYE_SECONDS, self._socket.shutdown, (socket.SHUT_RDWR,))
            timer.daemon = True
            timer.start()
            try:
                self._await(self._goodbye)
            finally:
                timer.cancel()
        except (OSError, GorunError):
            pass
        with self._lock:
            self._failure = Shutdown("the session is closed")
            self._changed.notify_all()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        # A thread that still reads must not find another file under the number of the socket.
        if self._reader in (0, threading.get_ident()):
            self._socket.close()
        if self.slots is not None:
            self.slots.end()
        self._results.clear()
        self._open.clear()  # without a waiter: their blocks, or results, refer to the session
        self._arena.close()

    # Waiting.

    def _find(self, handle: int) -> _Pending:
        pending = self._open.get(handle)
        if pending is None:
            self._check_process()  # or another thread has just closed the session
            raise InvalidArgument(f"wait for operation: unknown handle {handle}")
        return pending

    def _await(self, pending: _Pending) -> Any:
        """Return the outcome of pending, or raise it."""
        self._stay(pending)
        if pending.outcome is None:
            assert self._failure is not None
            raise self._again(self._failure)
        if isinstance(pending.outcome, Exception):
            raise self._again(pending.outcome)
        return pending.outcome

    def _stay(self, pending: _Pending, seconds: float | None = None) -> None:
        """Return when pending is over, or can no longer be, or after so many seconds."""
        started = time.perf_counter() if self._spin or seconds is not None else 0.0
        left = None
        while pending.outcome is None and (self._failure is None or pending is self._goodbye):
            if started:
                passed = time.perf_counter() - started
                if seconds is not None and (left := seconds - passed) < 0:
                    if not self._read_once(_AT_ONCE):  # an answer that is there still counts
                        return
                    continue
                if passed < self._spin:
                    self._read_once(_AT_ONCE)
                    continue
            self._read_once(_BLOCKING, pending, left)

    def _read_once(
        self, flags: tuple[int], pending: _Pending | None = None, seconds: float | None = None
    ) -> bool:
        """Read and handle one message, or sleep until another thread has; False if there was none in time.

        With something pending, this does neither if that is over by now: another thread may have read its
        answer, and be waiting again for one of its own.
        """
        me = threading.get_ident()
        try:
            with self._lock:
                if pending is not None and (
                    pending.outcome is not None
                    or (self._failure is not None and pending is not self._goodbye)
                ):
                    return True
                if self._reader not in (0, me):
                    if flags is _AT_ONCE:
                        return False
                    self._sleepers += 1
                    try:
                        self._changed.wait(seconds)
                    finally:
                        self._sleepers -= 1
                    return True
                self._reader = me
            if not self._inbox:
                if seconds is not None and not _readable(self._socket, seconds):
                    return False
                self._done.clear()
                # extend and map call recvmsg_into and keep its result without a byte code in between.
                self._inbox.extend(map(self._socket.recvmsg_into, self._buffers, _DESCRIPTOR_SPACE, flags))
            self._handle(self._inbox[0])
            self._inbox.popleft()
            return True
        except BlockingIOError:
            return False
        except (OSError, ValueError) as e:
            self._lost(e)
            return True
        finally:
            if self._reader == me:
                with self._lock:
                    self._reader = 0
                    if self._sleepers:
                        self._changed.notify_all()

    # Messages of the daemon. A method may run again for a message, if it was interrupted anywhere.

    def _once(self, call: Callable[[Any], Any], argument: Any) -> None:
        if call not in self._done:
            # update, zip and map call it and note the call without a byte code in between.
            self._done.update(zip((call,), map(call, (argument,))))

    def _whose(self, pending: _Pending | None) -> _Pending | None:
        """Return the request that was pending when the message came; it may have been answered since."""
        first: _Pending | None = self._done.setdefault(_Pending, pending)
        return first

    def _handle(self, received: Any) -> None:
        length, control, _, _ = received
        handle = message.plain(self._buffer, length)
        if handle >= 0:
            pending = self._open.get(handle)
            if pending is not None and pending.outcome is None:
                encoded = pending.encoded
                if encoded is not None and encoded.offer and self.slots is not None:
                    offset = message.slot(self._buffer)
                    if offset:
                        self.slots.open(encoded.name, offset, *encoded.offer)
                pending.encoded = None
                pending.took = message.took(self._buffer)
                pending.outcome = Result(pending.shape)
                if self.on_end is not None:
                    self.on_end(handle, pending.took)
            return
        several = message.completed(self._buffer, length)
        if several:
            for handle, flags in several:
                pending = self._open.get(handle)
                if pending is not None and pending.outcome is None:
                    pending.encoded = None
                    pending.took = flags >> 1
                    pending.outcome = Result(pending.shape)
                    if self.on_end is not None:
                        self.on_end(handle, pending.took)
            return
        if length == 0:
            strange = (
                ""
                if self._welcome.outcome
                else ": it does not expect this rank, or not with this GORUN_TOKEN"
            )
            raise ConnectionResetError("it closed the connection" + strange)
        m = message.decode(memoryview(self._buffer)[:length])
        if isinstance(m, message.Completion):
            if m.flags & 1:
                self._map_result(m.region, m.region_bytes, control)
            pending = self._whose(self._open.get(m.handle))
            if pending is None:
                if m.region != message.NO_REGION:
                    self._once(self._socket.send, message.release(m.handle))  # the waiter has given up
            elif pending.outcome is None:
                pending.encoded = None
                pending.took = m.flags >> 1
                pending.outcome = self._outcome(m, pending)
                if self.on_end is not None:
                    self.on_end(m.handle, pending.took)
        elif isinstance(m, message.Refusal):
            refused = error(m.code, m.text)
            if m.what == message.SUBMIT and m.number in self._open:
                self._open[m.number].outcome = refused
            elif m.what == message.ALLOC and m.number in self._requests:
                self._requests[m.number].outcome = MemoryError(m.text)
            elif m.what not in (message.SUBMIT, message.ALLOC):
                self._fail(refused)
        elif isinstance(m, message.NewRegion):
            pending = self._whose(self._requests.get(m.request))
            if pending is None or (pending.outcome is None and m.request not in self._requests):
                self._once(self._socket.send, message.free(m.region))  # the caller has given up
            elif pending.outcome is None:
                pending.outcome = Region(m.region, mmap.mmap(_descriptor(control), m.nbytes))
            self._once(os.close, _descriptor(control))
        elif isinstance(m, message.SharedSlots):
            if self._shared.outcome is None:
                memory = memoryview(mmap.mmap(_descriptor(control), m.nbytes))
                place = self._welcome.outcome
                assert isinstance(place, message.Welcome)
                self._shared.outcome = Slots(
                    memory, place.local_size, place.local_rank, self._socket.fileno(), _weakly(self._look)
                )
            self._once(os.close, _descriptor(control))
        elif isinstance(m, message.WakeUp):
            if self.slots is not None:
                self.slots.ring()
        elif isinstance(m, message.WorldGone):
            self._fail(error(m.code, m.text))
        elif isinstance(m, message.HostsChanged):
            self._hosts_changed.append(m)
        elif isinstance(m, message.Farewell):
            self._goodbye.outcome = Result()
        else:
            self._welcome.outcome = m

    def _outcome(self, m: message.Completion, pending: _Pending) -> Result | GorunError:
        if m.code:
            return error(m.code, m.text)
        if m.region == message.NO_REGION:
            return Result(m.dims or pending.shape, m.rows)
        whole = self._results[m.region]
        if m.offset + m.nbytes > len(whole):
            raise ValueError(f"result [{m.offset}, {m.offset + m.nbytes}) is outside of region {m.region}")
        handle = m.handle
        return Result(m.dims, m.rows, whole[m.offset : m.offset + m.nbytes], lambda: self._release(handle))

    def _release(self, handle: int) -> None:
        # No lock: a garbage collection may run this anywhere.
        if not self._closed and self._forks == _forks:
            self._send(message.release(handle))

    # Methods for slots.

    def _look(self) -> None:
        """Take a message if there is one, and raise the error that ends the session."""
        if self._failure is None:
            self._read_once(_AT_ONCE)
        if self._failure is not None:
            raise self._again(self._failure)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError:
            pass  # the next reader finds out why

    def _map_result(self, region: int, nbytes: int, control: Any) -> None:
        if region not in self._results:
            whole = mmap.mmap(_descriptor(control), nbytes, mmap.MAP_SHARED, mmap.PROT_READ)
            self._results[region] = memoryview(whole)
        self._once(os.close, _descriptor(control))

    # The arena's regions.

    def _grow(self, nbytes: int) -> Region:
        number = next(self._numbers) & 0xFFFFFFFF
        pending = self._requests[number] = _Pending()
        try:
            self._socket.send(message.alloc(number, nbytes))
            region = self._await(pending)
            assert isinstance(region, Region)
            return region
        except OSError as e:
            raise self._lost(e) from None
        except BaseException:
            if isinstance(pending.outcome, Region):  # interrupted when it had come
                self._shrink(pending.outcome)
            raise
        finally:
            self._requests.pop(number, None)

    def _shrink(self, region: Region) -> None:
        region.close()
        self._send(message.free(region.number))

    # The end.

    def _lost(self, cause: Exception) -> GorunError:
        self._goodbye.outcome = Result()  # there will be no other
        self._fail(Aborted(f"the gorun daemon of this host is gone: {cause}"))
        assert self._failure is not None
        return self._again(self._failure)

    def _fail(self, failure: GorunError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            self._changed.notify_all()
        if self.slots is not None:
            self.slots.ring()

    @staticmethod
    def _again(failure: _Failure) -> _Failure:
        """A fresh exception for every caller: a raised one carries its raiser's traceback.

        To keep that would also keep the frames of the script and all that is in them, the gradients for one,
        until a garbage collection.
        """
        return type(failure)(*failure.args)

    def _check_process(self) -> None:
        if self._forks != _forks:
            raise GorunError("a forked process cannot use its parent's session: use the start method 'spawn'")
        if self._closed:
            raise Shutdown("the session is closed")


def _companion() -> int:
    """Return the flag for a session beside one that a program in C has opened in this process."""
    native = sys.modules.get("gorun.native")
    return message.COMPANION if native is not None and native.speaks() else 0


def _weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of a method for parts of its object, which are useless without it.

    Else the object, and its memory, would stay until a garbage collection.
    """
    ref = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        alive = ref()
        assert alive is not None
        return alive(*args)

    return call


def _readable(from_: socket.socket, seconds: float) -> bool:
    """Report whether the socket is readable within so many seconds."""
    poll = select.poll()
    poll.register(from_, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _descriptor(control: Any) -> int:
    descriptors = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    if len(descriptors) != 1:
        raise ValueError(f"region came with {len(descriptors)} descriptors instead of 1")
    return descriptors[0]
