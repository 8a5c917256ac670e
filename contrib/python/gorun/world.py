"""One life of the library, from init() to shutdown(): the session and its operations in flight.

Everything that must start anew with the world lives here, including the counters of nameless operations:
ranks that joined later must count like the earlier ones.
"""

from __future__ import annotations

import collections
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from gorun import errors, message
from gorun.constants import LEADS
from gorun.counters import counters
from gorun.exceptions import HorovodInternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gorun.bindings import Cell
    from gorun.process_sets import ProcessSet
    from gorun.session import Block, Encoded, Result, Session
    from gorun.timeline import Timeline

NAMELESS_RING = 1 << 20  # the numbers of nameless operations repeat after this many
DUPLICATE = (
    "Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor that is "
    "currently being processed.  If you want to request another tensor, use a different tensor name."
)

MOST_READY = 4096  # operations whose memory is kept for the next one of their name
MOST_SHAPES = 20  # in the text of an error
ATTEND_SECONDS = 0.25  # of a wait that are counted at a time: a process that was stopped for longer waits on

# Process set and name of a request, and the other arguments of the session.
Part = tuple[tuple[int, str], "dict[str, Any]"]


class Ready(NamedTuple):
    """An allreduce of one tensor that may be repeated: its memory, and the session's encoding of it."""

    key: tuple[int, str]  # process set and name
    how: tuple[int, float, float, int]  # reduction, its factors, and how it travels
    block: Block
    cell: Cell
    request: Encoded


class World:
    """The session, its operations in flight by handle, and counters that are equal on all ranks."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.pid = os.getpid()
        self.dynamic_process_sets = False
        self.process_sets: dict[int, list[int]] = {}  # global ranks of the members, by group
        self.registered: list[ProcessSet] = []
        self.added: dict[tuple[int, ...], ProcessSet] = {}  # in an elastic job, by the ranks the user wanted
        self.timeline: Timeline | None = None
        self._closed = False
        self._on_close: list[Callable[[], None]] = []
        self._on_join: list[Callable[[int], None]] = []
        self._joins = 0
        self._launched = 0  # handles given out: 0, 1, 2…
        self._counters: dict[str, itertools.count] = collections.defaultdict(itertools.count)
        self._nameless: dict[str, itertools.count] = collections.defaultdict(itertools.count)
        self._operations: dict[int, Operation] = {}
        self._abandoned: list[Operation] = []
        self._cut_short: list[Operation] = []  # by Ctrl-C, in a wait that may not be repeated
        self._names: dict[tuple[int, str], int] = {}  # request in flight, by process set and name
        self.ready: dict[tuple[int, str], Ready] = {}  # those not in flight, by process set and name
        self._in_slots: dict[str, object] = {}  # operation in flight there, by name
        self._lock = threading.Lock()

    def serial(self, kind: str) -> int:
        """Return 0, 1, 2… for each kind: ranks that make the same calls get the same numbers."""
        return next(self._counters[kind]) % NAMELESS_RING

    def name(self, kind: str, name: str | None, group: int = 0) -> str:
        """Return the name by which ranks match operations. Each process set counts its nameless ones."""
        if name is not None:
            return f"{kind}.{name}"
        number = next(self._nameless[f"{kind}.{group}"]) % NAMELESS_RING
        return f"{kind}.noname.{self._joins}.{number}" if self._joins else f"{kind}.noname.{number}"

    def joined(self) -> None:
        """Number nameless operations anew, after different calls of the ranks, under the count of joins."""
        self._joins += 1
        self._nameless.clear()
        for function in self._on_join:
            function(self._joins)

    def on_join(self, function: Callable[[int], None]) -> None:
        """Call a function with the count of joins, now and after each one."""
        function(self._joins)
        self._on_join.append(function)

    def on_close(self, function: Callable[[], None]) -> None:
        """Call a function before this world is left."""
        self._on_close.append(function)

    def close(self) -> None:
        """Leave the job."""
        while self._on_close:
            self._on_close.pop()()
        self.session.close()
        for process_set in self.registered:
            process_set.process_set_id = None
        if self.timeline is not None:
            self.timeline.close()
        self._closed = True
        self._abandoned.clear()
        self._cut_short.clear()
        self._in_slots.clear()
        self.ready.clear()
        self._operations.clear()  # without a waiter: they refer to this world and the script's tensors

    def alloc(self, nbytes: int) -> Block:
        """Return arena memory."""
        try:
            return self.session.alloc(nbytes)
        except errors.InvalidArgument:
            raise
        except errors.GorunError as error:
            raise HorovodInternalError(str(error)) from error

    def launch(self, operation: Operation) -> int:
        """Enter a submitted operation and return its handle."""
        with self._lock:
            handle = self._launched
            self._operations[handle] = operation
            self._launched += 1
        return handle

    def on_device(self, handle: int) -> bool:
        """Report whether an operation in flight works on memory of a device."""
        operation = self._operations.get(handle)
        return operation is not None and operation.on_device

    def poll(self, handle: int) -> bool:
        """Report whether synchronize(handle) would return at once."""
        return self._find(handle).polled()

    def synchronize(self, handle: int) -> Any:
        """Wait for an operation, forget it, and return its result; a second call returns None."""
        operation = self._operations.get(handle)
        if operation is None:
            if 0 <= handle < self._launched and not self._closed:
                return None
            operation = self._find(handle)
        try:
            return operation.wait()
        finally:
            if operation.ended:
                self._operations.pop(handle, None)
            else:  # interrupted (Ctrl-C): it can be waited for again
                with self._lock:
                    self._cut_short.append(operation)

    def attend(self, handle: int, seconds: float) -> bool:
        """Wait at most this many seconds for an operation. Report whether it has ended."""
        operation = self._operations.get(handle)
        if operation is None or seconds <= 0:
            return operation is None or operation.attend(seconds)
        began = counters.waits()
        try:
            return operation.attend(seconds)
        finally:
            operation.blocked += counters.blocked(began)

    def give_up(self, handle: int) -> None:
        """Stop waiting for an operation. This rank's contribution still counts for the others."""
        operation = self._operations.pop(handle, None)
        if operation is not None:
            self.abandon(operation)

    def _find(self, handle: int) -> Operation:
        try:
            return self._operations[handle]
        except KeyError:
            if self._closed:
                raise HorovodInternalError("the session is closed") from None
            raise ValueError(f"Handle {handle} was not created or has been cleared.") from None

    def occupy(self, name: str, operation: object) -> None:
        """Note an operation in the slot of a name, or raise ValueError if the name is in flight."""
        if self._cut_short:
            self._end_cut_short()
        # setdefault is one step, whatever threads do.
        if self._in_flight((0, name)) or self._in_slots.setdefault(name, operation) is not operation:
            raise ValueError(DUPLICATE)

    def check_slots(self, parts: Sequence[Part]) -> None:
        """Raise ValueError if an operation is in the slot of a name."""
        if self._cut_short:
            self._end_cut_short()
        if self._in_slots and any(key[0] == 0 and key[1] in self._in_slots for key, _ in parts):
            raise ValueError(DUPLICATE)

    def _in_flight(self, key: tuple[int, str]) -> bool:
        """Report whether a name is taken: until this rank has waited for its request, or a poll saw it end.

        So the program alone decides whether a name is taken, not the speed of the other ranks.
        """
        request = self._names.get(key)
        return request is not None and self.session.has(request)

    def leave(self, name: str, operation: object) -> None:
        """Note that an operation has left the slot of a name."""
        if self._in_slots.get(name) is operation:
            self._in_slots.pop(name, None)

    def submit(self, parts: Sequence[Part], submitted: list[tuple[tuple[int, str], int]]) -> None:
        """Submit requests to the session under names that are free, all or none. Append each to submitted.

        Only the end of the session or Ctrl-C, which cannot be known before, fails halfway. What is in
        submitted then is in flight.
        """
        if self._abandoned:
            self._sweep()
        with self._lock:
            for key, _ in parts:
                if self._in_flight(key):
                    raise ValueError(DUPLICATE)
            if len(parts) > 1:
                self._check(parts)
            try:
                self._hand_in(parts, submitted)
            except BaseException:
                if len(parts) > 1:
                    self.session.desert()  # cancels the followers of a request that never comes
                submitted[:] = [part for part in submitted if self.session.has(part[1])]
                raise

    def repeat(
        self, operation: Operation, ready: Ready, submitted: list[tuple[tuple[int, str], int]]
    ) -> int:
        """Do what check_slots(), submit() and launch() do, with what is ready, in one step."""
        if self._cut_short:
            self._end_cut_short()
        if self._abandoned:
            self._sweep()
        key = ready.key
        with self._lock:
            if self._in_flight(key) or (key[0] == 0 and key[1] in self._in_slots):
                raise ValueError(DUPLICATE)
            try:
                self._begin(key, submitted, self.session.submit_encoded, ready.request)
            except BaseException:
                submitted[:] = [part for part in submitted if self.session.has(part[1])]
                raise
            handle = self._launched
            self._operations[handle] = operation
            self._launched += 1
        return handle

    def _hand_in(self, parts: Sequence[Part], submitted: list[tuple[tuple[int, str], int]]) -> None:
        timeline = self.timeline
        for key, request in parts:
            since = timeline.now() if timeline else 0.0
            if request.get("splits") is LEADS:
                request["splits"] = [number for _, number in submitted]
            number = self._begin(key, submitted, self.session.submit, name=key[1], group=key[0], **request)
            if timeline:
                what = {field: request[field] for field in ("kind", "dtype", "shape")}
                timeline.submitted(number, since, name=key[1], **what)

    def _begin(
        self, key: tuple[int, str], submitted: list[tuple[tuple[int, str], int]], submit: Callable[..., Any],
        *encoded: Encoded, **request: Any,
    ) -> int:  # fmt: skip
        # Noted before: once submitted it has its memory and its name, even if Ctrl-C comes right then.
        number = self.session.reserve()
        submitted.append((key, number))
        self._names[key] = number
        try:
            submit(*encoded, handle=number, **request)
        except errors.InvalidArgument:
            raise
        except errors.GorunError as error:
            raise HorovodInternalError(str(error)) from error
        return number

    def _check(self, parts: Sequence[Part]) -> None:
        """Refuse what the session would refuse in the middle."""
        if self.session.room() < len(parts):
            text = f"submit {parts[-1][0][1]}: with its {len(parts)} parts too many operations are in flight"
            raise errors.InvalidArgument(text)
        for (_, name), request in parts:
            fields = [request[field] for field in ("kind", "dtype", "shape", "src", "dst")]
            message.check(fields[0], name, *fields[1:], request.get("splits"))

    def _end_cut_short(self) -> None:
        """Free the names of waits that Ctrl-C cut short, if the operations have ended."""
        with self._lock:
            cut_short, self._cut_short = self._cut_short, []
        left: list[Operation] = []
        try:
            _end(cut_short, left, lambda operation: None)
        finally:
            with self._lock:
                self._cut_short += left + cut_short

    def abandon(self, operation: Operation) -> None:
        """Let an operation's submitted requests end unnoticed. They use its memory until then."""
        with self._lock:
            self._abandoned.append(operation)
        self._sweep()

    def _sweep(self) -> None:
        with self._lock:
            abandoned, self._abandoned = self._abandoned, []
        left: list[Operation] = []
        try:
            _end(abandoned, left, lambda operation: operation.release())
        finally:
            with self._lock:
                self._abandoned += left + abandoned

    def keep(self, ready: Ready) -> None:
        """Keep a finished allreduce for the next operation of its name."""
        if len(self.ready) >= MOST_READY:
            for old in (self.ready.pop(key, None) for key in list(self.ready)):
                if old is not None:
                    old.block.free()
        self.ready[ready.key] = ready

    def forget(self, key: tuple[int, str], number: int) -> None:
        """Free the name of a request that ended."""
        with self._lock:
            if self._names.get(key) == number:
                del self._names[key]


def _end(operations: list[Operation], left: list[Operation], ended: Callable[[Operation], None]) -> None:
    """Take operations off a list: those that have ended, and into another list those that have not.

    Ctrl-C may come at any time. Each operation then is in one of the lists, unless ended() has been called.
    """
    while operations:
        operation = operations.pop()
        try:
            over = _over(operation)
        except BaseException:
            left.append(operation)
            raise
        if over:
            ended(operation)
        else:
            left.append(operation)


def _over(operation: Operation) -> bool:
    """Report whether an operation has ended; one of a GPU that fails has, and nobody asks for its error."""
    try:
        return operation.over()
    except Exception:
        return True


class Operation:
    """One call of the user: its requests, their memory, and the handling of their results.

    request()  prepares a request
    launch()   submits all of them, as submit() does: begun() is true from the first one on
    repeat()   does both for an allreduce that is ready
    over()     reports whether all have ended, and takes their results in order; poll() returns polled()
    wait()     waits for the others; then the operation has ended, and it returns the results or raises
    release()  frees the memory: the last step of wait(), or of World for an operation that was abandoned
    """

    # These belong to the class because __init__ runs for each of many small operations.
    ended = False  # wait() has all results
    blocked = 0  # nanoseconds that attend() has waited, and that do not count yet
    on_device = False
    wrong = ""  # an error of this rank's arguments, which the engine reports to all ranks
    _polled = False
    _ready: Ready | None = None
    _error: errors.GorunError | None = None
    _finish: Callable[[Sequence[Any]], Any]

    def __init__(self, world: World, group: int) -> None:
        self._world = world
        self._group = group
        self._packed: dict[int, Sequence[tuple[str, Sequence[int]]]] = {}
        self._parts: list[Part] = []  # prepared, not submitted
        self._requests: list[tuple[tuple[int, str], int]] = []
        self._blocks: list[Block] = []
        self._lock = threading.Lock()  # held by the thread that takes results
        self._results: list[Result | None] = []

    def request(
        self,
        kind: int,
        name: str,
        dtype: int,
        shape: Sequence[int],
        block: Block | None,
        in_place: bool,
        keep: bool = False,
        **options: Any,
    ) -> None:
        """Prepare one request, which launch() submits.

        in_place: its result replaces the input. keep: the caller owns the block. options: what else the kind
        has in PROTOCOL.md; the signature of an allreduce is its root, that of a broadcast its prescale.
        """
        request = {"kind": kind, "dtype": dtype, "shape": tuple(shape), "src": block, **options}
        request["dst"] = block if in_place else None
        self._parts.append(((self._group, name), request))
        if block is not None and not keep:
            self._blocks.append(block)

    def repeat(self, ready: Ready, finish: Callable[[Sequence[Any]], Any]) -> int:
        """Submit what is ready, and nothing else, and return the handle, as launch() does."""
        self._ready, self._finish = ready, finish
        try:
            return self._world.repeat(self, ready, self._requests)
        except BaseException:
            self._world.abandon(self)
            raise

    def explain(self, signature: int, tensors: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Keep types and shapes for the text of an error; other ranks only get their signature."""
        self._packed[signature] = tensors

    def _explained(self, error: errors.GorunError) -> errors.GorunError:
        if not isinstance(error, errors.Mismatch):
            return error
        text = str(error)
        for signature, tensors in self._packed.items():
            if f"shapes {signature:08x}" in text:
                some = [f"{dtype}[{','.join(map(str, shape))}]" for dtype, shape in tensors[:MOST_SHAPES]]
                more = f" and {len(tensors) - MOST_SHAPES} more" if len(tensors) > MOST_SHAPES else ""
                text += f"; rank {self._world.session.rank} has, as {signature:08x}, {', '.join(some)}{more}"
        return errors.Mismatch(text)

    def launch(self, finish: Callable[[Sequence[Any]], Any]) -> int:
        """Submit all requests, or none, and return the handle. finish makes the result of their results."""
        try:
            self._world.check_slots(self._parts)
            self.submit(finish)
            return self._world.launch(self)
        except BaseException as error:
            self._world.abandon(self)
            if self.wrong and isinstance(error, errors.InvalidArgument):
                raise ValueError(self.wrong) from None
            raise

    def submit(self, finish: Callable[[Sequence[Any]], Any]) -> None:
        """Do what launch() does, for a caller that has the name and keeps the operation in any case."""
        self._finish = finish
        parts, self._parts = self._parts, []
        self._world.submit(parts, self._requests)

    def begun(self) -> bool:
        """Report whether anything was submitted, or may have been when Ctrl-C came."""
        return bool(self._requests)

    def polled(self) -> bool:
        """Report what over() does, but False the first time.

        In Horovod no operation ends within its submission, and loops of its users rely on that.
        """
        again, self._polled = self._polled, True
        return again and self.over()

    def over(self) -> bool:
        """Report whether every request ended, without waiting."""
        if self._lock.locked():
            return False  # another thread is about to know
        with self._lock:
            while len(self._results) < len(self._requests):
                if not self._world.session.poll(self._requests[len(self._results)][1]):
                    return False
                self._take()
        return True

    def attend(self, seconds: float) -> bool:
        """Wait at most this many seconds. Report whether every request ended; wait() takes the results."""
        for _, number in self._requests:
            while not self._world.session.attend(number, min(seconds, ATTEND_SECONDS)):
                if seconds <= 0:
                    return False
                seconds -= ATTEND_SECONDS
        return True

    def wait(self) -> Any:
        """Wait for every request; then raise the first failure or return the result of finish.

        What Ctrl-C cuts short can be done again. Where several threads wait, one gets the result.
        """
        with self._lock:
            if self.ended:
                return None
            while len(self._results) < len(self._requests):
                self._take()
            try:
                value = self._outcome()
                self.ended = True
                return value
            except Exception:
                self.ended = True
                raise
            finally:
                if self.ended:
                    self._error = None  # which has this frame by now, if it was raised
                    self.release()

    def _outcome(self) -> Any:
        if self._error is None:
            return self._finish(self._results)
        if self.wrong and isinstance(self._error, (errors.InvalidArgument, errors.Mismatch)):
            raise ValueError(self.wrong)
        if isinstance(self._error, errors.InvalidArgument):
            raise self._error
        raise HorovodInternalError(str(self._error)) from self._error

    def release(self) -> None:
        """Free all memory, after the end."""
        for result in self._results:
            if result is not None and result.view is not None:
                result.release()
        for block in self._blocks:
            block.free()
        ready, self._ready = self._ready, None
        if ready is not None:
            self._world.keep(ready)

    def _take(self) -> None:
        """Wait for the next request, and keep its result or the first error."""
        key, number = self._requests[len(self._results)]
        result = None
        try:
            result = self._world.session.wait(number)
        except errors.GorunError as error:
            # Without the traceback, which has this frame and so the operation, and the script's frames.
            self._error = self._error or self._explained(error).with_traceback(None)
        blocked, self.blocked = self.blocked, 0
        counters.shown(blocked, result.took if result else 0)
        self._results.append(result)
        self._world.forget(key, number)
