"""Collectives of all ranks on memory of their GPUs, by NCCL.

NCCL needs the operations of a communicator in one order on all ranks, but scripts may start them in any. So
two small operations of gorun precede each. The first is a sum under the operation's name: it ends once all
ranks have called the operation, and finds ranks that called something else. The second is a word from rank 0,
which chooses the order. docs/decisions/0059 says why.

A thread of the group owns the communicator. While anything runs, it checks the communicator, the world and
the other ranks every 100 ms. If one of them has failed it aborts the communicator, and every wait raises
HorovodInternalError. A group serves one world; the next world has another one.
"""

from __future__ import annotations

import collections
import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gorun import constants
from gorun.exceptions import HorovodInternalError
from gorun.gpu import nccl
from gorun.gpu.calls import (
    CLOSE_SECONDS,
    LEAVING,
    LONGEST_PAUSE,
    ORDER_SECONDS,
    PAUSE,
    Call,
    Calls,
    Lost,
    Work,
    itemsize,
)
from gorun.gpu.driver import Device, Stream
from gorun.world import Operation

if TYPE_CHECKING:
    from gorun.world import World

WATCH_SECONDS = 0.1  # between two looks at what runs
LEFT_SECONDS = 0.5  # what runs may still take once a rank has left: it may have ended there
SILENCE_SECONDS = 600.0  # until what all ranks have called, and NCCL does not end, is given up

_ID_BYTES = 128  # of NCCL's unique id

WATCH_PREFIX = "gorun.watch."  # of operations that no other rank joins: the daemon does not call them late

OPS = {
    constants.AVERAGE: nccl.AVG, constants.SUM: nccl.SUM, constants.MIN: nccl.MIN, constants.MAX: nccl.MAX,
    constants.PRODUCT: nccl.PROD,
}  # fmt: skip


class Group(Calls):
    """All ranks of a world, with a communicator over them."""

    def __init__(
        self, world: World, device: Device, library: nccl.Nccl | None = None,
        silence: float = SILENCE_SECONDS, members: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """members: the ranks of the communicator, where not all ranks of the world have the same one."""
        super().__init__(world, device)
        self._members = list(members or range(world.session.size))
        self._library = library or nccl.nccl()
        self._silence = silence
        self._stream = Stream(device)
        self._comm = 0
        # The thread's own.
        self._ready: dict[int, Work] = {}  # called by all ranks, by number
        self._orders: collections.deque[tuple[Operation, int]] = collections.deque()  # rank 0's words to come
        self._ordered = 0  # words asked for
        self._next = 0  # the number of what comes next, 0 if that is not known
        self._running: collections.deque[Work] = collections.deque()
        self._watch: Operation | None = None
        self._deadline = math.inf  # of what runs
        self._reason = ""  # for that
        self.serve()

    def allreduce(
        self, name: str, source: int, target: int, count: int, dtype: str, op: int, stream: int,
        also: object = None, by_host: Callable[[], int] | None = None,
    ) -> Work:  # fmt: skip
        """Start to reduce so many elements of all ranks. Source and target are addresses, and may be equal.

        All ranks give an operation the same name. It begins after what the stream was given so far. The
        other operations do the same. What else must be equal on all ranks is in also.
        """
        arguments = source, target, count, nccl.DATA_TYPES[dtype], OPS[op]
        how = dtype, count, op, also
        return self.start(name, how, self._calling("ncclAllReduce", *arguments), stream, by_host=by_host)

    def broadcast(
        self, name: str, source: int, target: int, count: int, dtype: str, root: int, stream: int,
        also: object = None, by_host: Callable[[], int] | None = None,
    ) -> Work:  # fmt: skip
        """Start to send the root's elements to all."""
        arguments = source, target, count, nccl.DATA_TYPES[dtype], root
        how = dtype, count, root, also
        return self.start(name, how, self._calling("ncclBroadcast", *arguments), stream, by_host=by_host)

    def allgather(
        self, name: str, source: int, target: int, count: int, dtype: str, stream: int, also: object = None,
        by_host: Callable[[], int] | None = None,
    ) -> Work:  # fmt: skip
        """Start to join all ranks' elements, in rank order.

        Ranks that have different numbers of them, or none at all, leave it to the host.
        """
        launch = self._calling("ncclAllGather", source, target, count, nccl.DATA_TYPES[dtype])
        balance = [*self._alike(count), int(not count)]
        return self.start(name, (dtype, also), launch, stream, by_host=by_host, balance=balance)

    def reducescatter(
        self, name: str, source: int, target: int, count: int, dtype: str, op: int, stream: int,
        also: object = None, by_host: Callable[[], int] | None = None,
    ) -> Work:  # fmt: skip
        """Start to reduce elements of all ranks, of which each gets its share of so many."""
        arguments = source, target, count, nccl.DATA_TYPES[dtype], OPS[op]
        how = dtype, count, op, also
        return self.start(name, how, self._calling("ncclReduceScatter", *arguments), stream, by_host=by_host)

    def alltoall(
        self, name: str, source: int, target: int, sent: Sequence[int], received: Sequence[int], dtype: str,
        stream: int, also: object = None, by_host: Callable[[], int] | None = None,
    ) -> Work:  # fmt: skip
        """Start to send sent[i] elements to rank i, and to receive received[i] from it, in rank order.

        If a rank expects another number than it is sent, all leave it to the host.
        """
        kind, size = nccl.DATA_TYPES[dtype], itemsize(dtype)

        def launch(comm: int, own: int) -> None:
            self.call("ncclGroupStart")
            try:
                at, to = source, target
                for peer, (out, back) in enumerate(zip(sent, received)):
                    if out:
                        self.call("ncclSend", at, out, kind, peer, comm, own)
                    if back:
                        self.call("ncclRecv", to, back, kind, peer, comm, own)
                    at, to = at + out * size, to + back * size
            except Exception:
                with contextlib.suppress(Exception):  # an abort would wait for the end of the group
                    self.call("ncclGroupEnd")
                raise
            self.call("ncclGroupEnd")

        return self.start(
            name, (dtype, also), launch, stream, by_host=by_host, balance=self._matched(sent, received)
        )

    def _calling(self, function: str, *arguments: int) -> Callable[[int, int], None]:
        """Return what makes a call of NCCL, by communicator and stream."""
        return lambda comm, own: self.call(function, *arguments, comm, own)

    def _alike(self, value: int) -> list[int]:
        """Return numbers whose sums over all ranks are zero if all ranks have the same value."""
        rank, size = self._world.session.rank, self._world.session.size
        sums = [0] * size
        sums[rank] += value
        sums[rank - 1] -= value
        return sums

    def _matched(self, sent: Sequence[int], received: Sequence[int]) -> list[int]:
        """Return numbers whose sums are zero if each rank receives from each what that sends."""
        rank, size = self._world.session.rank, self._world.session.size
        sums = [0] * size**2
        for peer in range(size):
            sums[rank * size + peer] += sent[peer]
            sums[peer * size + rank] -= received[peer]
        return sums

    def start(
        self, key: str, how: tuple[object, ...], launch: Callable[[int, int], None], stream: int,
        then: Callable[[int], None] | None = None, by_host: Callable[[], int] | None = None,
        balance: Sequence[int] = (),
    ) -> Work:  # fmt: skip
        """Start an operation of any calls of NCCL, once all ranks of the world have, after those of a stream.

        launch makes the calls, with a communicator and a stream; then gives the stream what follows them. how
        must be equal on all ranks. by_host starts what takes its place, and returns its handle, where a rank
        has joined, or where the sum of a number of balance over all ranks is not zero.
        """
        self.check(key, stream)
        work = Work(self, key, launch, then, by_host)
        self.names.take(work.key, work)
        self.begin(work, how, stream, balance)
        return work

    # The thread.

    def _undecided(self) -> Iterable[Work]:
        return self._ready.values()

    def _loop(self) -> None:
        while True:
            idle = WATCH_SECONDS if self._running else None
            called = self._wait_for_calls(0 if self._orders else idle)
            if called is None:
                return
            self._turn(called)
            if self._orders:
                self._orders[0][0].attend(ORDER_SECONDS)
            elif called:
                called[0][1].attend(ORDER_SECONDS)

    def _turn(self, called: Sequence[Call]) -> None:
        self._check()
        self._answer(called)
        while self._next or (self._orders and self._orders[0][0].over()):
            if not self._next:
                self._next = int(self._world.synchronize(self._orders.popleft()[1]))
            if self._next not in self._ready:
                break  # here its sum has yet to end, or to be looked at
            number, self._next = self._next, 0
            self._launch(self._ready.pop(number))
        while self._running and self._running[0].after.over():
            self._running.popleft()

    def _answered(self, work: Work, sums: list[int]) -> None:
        """Ask for rank 0's word, or leave it to the host, as all ranks do."""
        if sums[0] < self._world.session.size or any(sums[1:]):  # a rank that has joined adds nothing
            work.left_to_host()
            return
        self._ready[work.number] = work
        first = self._world.session.rank == 0
        self._orders.append(self._word(self._ordered, work.number if first else 0))
        self._ordered += 1

    def _word(self, count: int, value: int) -> tuple[Operation, int]:
        """Start to send the number of what comes next from rank 0 to all."""
        block = self._world.alloc(8)
        block.view[:] = value.to_bytes(8, "little")
        operation = Operation(self._world, 0)
        operation.request(
            constants.BROADCAST, f"gorun.gpu.order.{count}", constants.UINT8, (8,), block, True, root=0
        )
        return operation, operation.launch(lambda _: int.from_bytes(block.view[:8], "little"))

    def _launch(self, work: Work) -> None:
        try:
            if self._watch is None:  # all ranks have called the operation, so none has joined
                self._watch = self._begin_watch()
            if not self._comm:
                self._set_up()
            work.before.before(self._stream.handle)
            work.launch(self._comm, self._stream.handle)
            self._settle()
            if work.then is not None:
                work.then(self._stream.handle)
            work.after.record(self._stream.handle)
        except Exception as error:
            self.failure = self.failure or str(error)
            work.fail(self.failure)
            raise
        self._running.append(work)
        work.launched()

    def _set_up(self) -> None:
        session, members = self._world.session, self._members
        mine = self._library.unique_id() if session.rank == members[0] else bytes(_ID_BYTES)
        block = self._world.alloc(_ID_BYTES)
        block.view[:] = mine
        operation = Operation(self._world, 0)
        operation.request(
            constants.ALLGATHER, "gorun.gpu.ids", constants.UINT8, (_ID_BYTES,), block, False
        )
        handle = operation.launch(lambda results: bytes(results[0].view))
        while not operation.over():
            operation.attend(ORDER_SECONDS)
            self._check()
        first = _ID_BYTES * members[0]
        unique = self._world.synchronize(handle)[first : first + _ID_BYTES]
        self._comm = self._library.begin(unique, members.index(session.rank), len(members))
        self._settle()

    def _begin_watch(self) -> Operation:
        """Start an operation that no other rank joins: it fails when one leaves, or the world ends."""
        block = self._world.alloc(4)
        operation = Operation(self._world, 0)
        name = f"{WATCH_PREFIX}gpu.{self._world.session.rank}"
        operation.request(constants.ALLREDUCE, name, constants.INT32, (1,), block, True, op=constants.MAX)
        operation.launch(lambda _: None)
        return operation

    def call(self, name: str, *arguments: int) -> None:
        """Call a function of NCCL; for launch."""
        self._library.call[name](*arguments)

    def _settle(self) -> None:
        """Wait until the communicator, which does not block, has taken the last call."""
        pause, until = PAUSE, time.monotonic() + self._silence
        while self._library.state(self._comm) == nccl.IN_PROGRESS:
            now = time.monotonic()
            if self._closing and self._deadline == math.inf:
                self._expect(LEAVING, CLOSE_SECONDS)
            if now > self._deadline:
                raise Lost(self._reason)
            if now > until:
                raise Lost(f"NCCL was silent for {self._silence:g} s; NCCL_DEBUG=INFO shows what it did")
            self._look_at_world()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        self._look_at_communicator()

    def _check(self) -> None:
        """Raise Lost if what runs will not end."""
        self._look_at_world()
        if not self._comm:
            return
        self._look_at_communicator()
        if not self._running:
            return
        now = time.monotonic()
        if now > self._deadline:
            raise Lost(self._reason)
        if now > self._running[0].since + self._silence:
            text = f"NCCL was silent for {self._silence:g} s; NCCL_DEBUG=INFO shows what it did"
            raise Lost(f"{self._running[0].key}: {text}")

    def _look_at_communicator(self) -> None:
        state = self._library.state(self._comm)
        if state not in (nccl.SUCCESS, nccl.IN_PROGRESS):
            raise Lost(self._library.explain(state))

    def _look_at_world(self) -> None:
        ended = self._world.session.lost()
        if ended is not None:
            raise Lost(str(ended))
        if self._watch is not None and self._watch.over():
            watch, self._watch = self._watch, None
            try:
                watch.wait()  # ends without an error if all others have joined
            except HorovodInternalError as error:
                self._expect(str(error), LEFT_SECONDS)

    def _expect(self, reason: str, seconds: float) -> None:
        """Give what runs so many seconds more."""
        self._deadline, self._reason = time.monotonic() + seconds, reason

    def _drain(self) -> None:
        """Wait for what runs when this rank leaves."""
        self._expect(LEAVING, CLOSE_SECONDS)
        while self._running:
            if self._running[0].after.over():
                self._running.popleft()
                continue
            self._check()
            time.sleep(LONGEST_PAUSE)

    def _end(self) -> None:
        """Abort the communicator, unless it is sound. The reason is set before: an abort ends what waits."""
        comm, self._comm = self._comm, 0
        sound = bool(comm) and not self._running and not self.failure
        try:
            if sound:
                self._library.call["ncclCommFinalize"](comm)
                until = time.monotonic() + CLOSE_SECONDS
                while self._library.state(comm) == nccl.IN_PROGRESS and time.monotonic() < until:
                    time.sleep(LONGEST_PAUSE)
                sound = self._library.state(comm) == nccl.SUCCESS
        finally:
            if comm:
                self._library.call["ncclCommDestroy" if sound else "ncclCommAbort"](comm)
            self._stream.close()
