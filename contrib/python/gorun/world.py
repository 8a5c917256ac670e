"""One life of the library, from init() to shutdown(): the session and its operations in flight.

Everything that must start anew with the world lives here, including the counters of nameless operations:
ranks that joined later must count like the earlier ones.
"""

from __future__ import annotations

import collections
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any, Callable

from gorun import errors
from gorun.counters import counters
from gorun.exceptions import HorovodInternalError
from gorun.library import BEGUN
from gorun.session import Block, Request, Result, Ticket
from gorun.staging import Staged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gorun.bindings import Binding
    from gorun.process_sets import ProcessSet
    from gorun.session import Session
    from gorun.timeline import Timeline

NAMELESS_RING = 1 << 20  # the numbers of nameless operations repeat after this many
DUPLICATE = (
    "Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor that is "
    "currently being processed.  If you want to request another tensor, use a different tensor name."
)

# An encoded allreduce of a tensor in place: for which tensors and options, its tickets, what the session
# repeats, and the address of the tensor in it.
Kept = list[Any]
MOST_KEPT = 4096
MOST_SHAPES = 20  # in the text of an error
ATTEND_SECONDS = 0.25  # of a wait that are counted at a time: a process that was stopped for longer waits on


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
        self.kept: dict[str, Kept] = {}  # encoded allreduces that are not in flight, by name
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

    def submit(self, operation: Operation, requests: Sequence[Request]) -> None:
        """Submit the requests of an operation under names that are free, all or none.

        Only the end of the session, which cannot be known before, fails halfway.
        """
        timeline = self.timeline
        since = timeline.now() if timeline else 0.0
        self.begin(self.session.start, requests, operation.tickets)
        if timeline:
            for request, ticket in zip(requests, operation.tickets):
                timeline.submitted(ticket[0], since, request)

    def submit_now(self, operation: Operation, request: Request) -> bool:
        """Submit an allreduce that the caller waits for at once. Report whether it has ended."""
        return bool(self.begin(self.session.start_now, request, operation.tickets[0]))

    def keep(self, name: str | None, kept: Kept) -> None:
        """Keep an encoded allreduce for the next one of its name."""
        if name is not None and len(self.kept) < MOST_KEPT:
            self.kept[name] = kept

    def begin(self, start: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the session that submits, when the names of what nobody waits for are free."""
        if self._abandoned:
            self._sweep()
        try:
            try:
                return start(*arguments)
            except errors.Busy:
                self.sweep_names()
                return start(*arguments)
        except errors.Busy:
            raise ValueError(DUPLICATE) from None
        except errors.InvalidArgument:
            raise
        except errors.GorunError as error:
            raise HorovodInternalError(str(error)) from error

    def sweep_names(self) -> None:
        """Free the names of operations that have ended, and that nobody can wait for, or need not."""
        self._end_cut_short()
        self._sweep()

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
    _results: list[Result | None] | tuple[()] = ()
    _error: BaseException | None = None
    _finish: Callable[[Sequence[Any]], Any]

    def __init__(self, world: World, group: int) -> None:
        self._world = world
        self._group = group
        self._packed: dict[int, Sequence[tuple[str, Sequence[int]]]] = {}
        self._requests: list[Request] = []  # prepared, not submitted
        self.tickets: list[Ticket] = []
        self._memory: list[Block | Staged | None] = []  # of each request
        self._lock = threading.Lock()  # held by the thread that takes results

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
        """Prepare one request on a block, which launch() submits.

        in_place: its result replaces the input. keep: the caller owns the block. options: what else the kind
        has in PROTOCOL.md; the signature of an allreduce is its root, that of a broadcast its prescale.
        """
        if block is not None:
            options["source"], options["nbytes"] = block.address, block.nbytes
            if in_place:
                options["target"] = block.address
        self.prepare(kind, name, dtype, shape, None if keep else block, options)

    def stage(self, kind: int, name: str, staged: Staged, **options: Any) -> None:
        """Prepare one request on tensors, which launch() submits."""
        self.prepare(kind, name, staged.dtype, staged.shape, staged, {**staged.options, **options})

    def prepare(
        self, kind: int, name: str, dtype: int, shape: Sequence[int], memory: Block | Staged | None,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        """Prepare one request with all its options; memory is what it works on."""
        self._requests.append(Request(kind, name, dtype, shape, group=self._group, **options))
        self.tickets.append(Ticket())
        self._memory.append(memory)

    def explain(self, signature: int, tensors: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Keep types and shapes for the text of an error; other ranks only get their signature."""
        self._packed[signature] = tensors

    def _explained(self, error: Exception) -> Exception:
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
            self.submit(finish)
            return self._world.launch(self)
        except BaseException as error:
            self._world.abandon(self)
            if self.wrong and isinstance(error, errors.InvalidArgument):
                raise ValueError(self.wrong) from None
            raise

    def launch_now(self, finish: Callable[[Sequence[Any]], Any]) -> int:
        """Do what launch() does for one request, for a caller that waits at once."""
        self._finish = finish
        try:
            if self._world.submit_now(self, self._requests.pop()):
                self.tickets, self._results = [], [Result()]
            return self._world.launch(self)
        except BaseException:
            self._world.abandon(self)
            raise

    def submit(self, finish: Callable[[Sequence[Any]], Any]) -> None:
        """Do what launch() does, for a caller that keeps the operation in any case."""
        self._finish = finish
        requests, self._requests = self._requests, []
        self._world.submit(self, requests)

    def begun(self) -> bool:
        """Report whether anything was submitted."""
        return any([ticket[BEGUN] for ticket in self.tickets])

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
            while len(self._results) < len(self.tickets):
                if not self._world.session.attend(self.tickets[len(self._results)], 0):
                    return False
                self._take()
        return True

    def attend(self, seconds: float) -> bool:
        """Wait at most this many seconds. Report whether every request ended; wait() takes the results."""
        for ticket in self.tickets:
            while not self._world.session.attend(ticket, max(0.0, min(seconds, ATTEND_SECONDS))):
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
            while len(self._results) < len(self.tickets):
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
        if isinstance(self._error, errors.InvalidArgument) or not isinstance(self._error, errors.GorunError):
            raise self._error
        raise HorovodInternalError(str(self._error)) from self._error

    def _moved(self, number: int) -> bool:
        """Report whether the memory that a request writes to is no longer where it was."""
        memory = self._memory[number] if self._memory else None
        return isinstance(memory, Staged) and memory.moved()

    def release(self) -> None:
        """Free all memory, after the end."""
        for result in self._results:
            if result is not None and result.view is not None:
                result.release()
        memories, self._memory = self._memory, []
        for memory in memories:
            if isinstance(memory, Block):
                memory.free()

    def _take(self) -> None:
        """Wait for the next request, and keep its result or the first error."""
        number = len(self._results)
        result = None
        moved = self._moved(number)
        try:
            result = self._world.session.wait(self.tickets[number], not moved)
            if moved:
                self._error = self._error or RuntimeError("a tensor got other memory while it was in flight")
        except (errors.GorunError, MemoryError) as error:
            # Without the traceback, which has this frame and so the operation, and the script's frames.
            self._error = self._error or self._explained(error).with_traceback(None)
        blocked, self.blocked = self.blocked, 0
        if blocked:
            counters.shown(blocked, result.took if result else 0)
        self._results = self._results or []
        self._results.append(result)


class Repeated(Operation):
    """The allreduce of one ordinary tensor in place, which was submitted as it was encoded."""

    _packed: dict[int, Any] = {}

    def __init__(
        self, world: World, name: str | None, kept: Kept, binding: Binding, tensor: Any, place: Any
    ) -> None:  # fmt: skip
        self._world, self._name, self._kept = world, name, kept
        self._binding, self._tensor, self._place = binding, tensor, place
        self.tickets = kept[1]
        self._lock = threading.Lock()

    def wait(self) -> Any:
        """Do what Operation.wait() does, in less time if nothing is the matter."""
        with self._lock:
            if not (self.ended or self._results or self.blocked or self._moved(0)):
                if self._world.session.ended(self.tickets[0]):
                    return self._finish(())
        return super().wait()

    def _moved(self, number: int) -> bool:
        t = self._tensor
        dtype, shape, address = self._place
        return bool(self._binding.address(t) != address or t.shape != shape or t.dtype != dtype)

    def _finish(self, results: Sequence[Any]) -> Any:
        self.ended = True  # before another one may have the ticket
        self._world.keep(self._name, self._kept)
        return self._tensor

    def release(self) -> None:
        """Do nothing: the tensor is the caller's."""
