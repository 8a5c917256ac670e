"""Allreduces of ranks that share a GPU, by CUDA's shared memory (IPC) and a kernel: NCCL refuses such ranks.

Each rank copies its tensor to memory that the others of its GPU may read. Each then reduces one slice of all
of them into its own memory, and copies the slices of the others to its tensor. Where there are several GPUs,
gorun's engine adds up a slice over those between the two.

No rank waits on the GPU for another one: all waits for others are small operations of gorun, which fail when
a rank is lost. And ranks only read memory of others. docs/decisions/0061 says why.
"""

from __future__ import annotations

import array
import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gorun import constants, errors
from gorun.exceptions import HorovodInternalError
from gorun.gpu.calls import CLOSE_SECONDS, LEAVING, LONGEST_PAUSE, PAUSE, Call, Calls, Lost, Work, itemsize
from gorun.gpu.driver import Device, Event, Failed, Stream
from gorun.gpu.kernels import UNIT, Kernel, Wrong
from gorun.gpu.shares import Awaited, Shares, Steps
from gorun.gpu.staging import PLACE_BYTES, Opened, Piece, Staging, staging
from gorun.world import Operation

if TYPE_CHECKING:
    from gorun.world import World

_LOOK_SECONDS = 0.0005  # at most, between two looks at what waits for other ranks


class Job(Work):
    """An allreduce. Its name is free, and wait() returns, once this rank has said that it is done with it."""

    def __init__(
        self, group: Calls, key: str, source: int, target: int, nbytes: int, dtype: str, op: int,
        by_host: Callable[[], int] | None,
    ) -> None:  # fmt: skip
        super().__init__(group, key, by_host=by_host)
        self.source, self.target, self.nbytes = source, target, nbytes
        self.dtype, self.op = dtype, op
        self.piece: Piece | None = None
        self.kernel: Kernel | None = None


class _Task:
    """A job under way: what it waits for, and the generator that goes on then."""

    def __init__(self, job: Job, steps: Steps) -> None:
        self.job = job
        self.steps = steps
        self.awaited: Awaited | None = None


class Ipc(Calls):
    """All ranks of a world, of which the same number shares each GPU."""

    def __init__(self, world: World, device: Device, gpus: Sequence[Sequence[int]]) -> None:
        """gpus: the ranks of each."""
        super().__init__(world, device)
        rank = world.session.rank
        self._members = next(list(members) for members in gpus if rank in members)
        self._index = self._members.index(rank)
        self._group = constants.DECLARED + (self._members[0] << 15) + (1 << 15) - 2
        world.session.add_group(self._members, self._group)
        self._shares = Shares(world, device, [members[self._index] for members in gpus])
        self._staging: Staging = staging(device.ordinal)
        self._stream = Stream(device)
        self._serial = 0  # of rank 0's calls
        self._unable = ""  # why this rank cannot read memory of the others
        self._said: set[str] = set()
        self._holding: set[Job] = set()  # all that have a piece
        # The thread's own.
        self._opened = Opened(device)
        self._tasks: list[_Task] = []
        self._pause = PAUSE
        self.serve()

    def allreduce(
        self, name: str, source: int, target: int, count: int, dtype: str, op: int, stream: int,
        also: object = None, by_host: Callable[[], int] | None = None,
    ) -> Work:  # fmt: skip
        """Start to reduce elements of all ranks; see Group.allreduce()."""
        self.check(name, stream)
        job = Job(self, name, source, target, count * itemsize(dtype), dtype, op, by_host)
        self.names.take(job.key, job)
        try:
            with self.device.driver.relaxed():
                serial = self._prepare(job)
            self.begin(job, (dtype, count, op, also), stream, [int(job.kernel is None), serial])
        except BaseException:
            self._give_back(job)
            raise
        return job

    def _prepare(self, job: Job) -> int:
        """Get what a job needs, if that is there; return what this rank adds to the job's number."""
        lacks = self._unable
        try:
            if not lacks:
                with self._changed:
                    self._holding.add(job)
                job.piece = self._staging.take(max(1, len(self._members) * self._part(job.nbytes)))
                job.kernel = self._staging.kernels.get(job.dtype, job.op, len(self._members))
        except (Failed, Wrong) as error:
            lacks = str(error)
        if lacks:
            self._say(lacks)
        if self._world.session.rank:
            return 0
        with self._changed:
            self._serial += 1
            return self._serial

    def _part(self, nbytes: int) -> int:
        """Return the bytes of a slice: whole units."""
        units = -(-nbytes // UNIT)
        return -(-units // len(self._members)) * UNIT

    def _slice(self, job: Job, index: int) -> tuple[int, int]:
        """Return where a member's slice begins, and how many bytes of the tensor it has."""
        part = self._part(job.nbytes)
        return index * part, max(0, min(part, job.nbytes - index * part))

    def _say(self, why: str) -> None:
        """Write once why operations go by the host."""
        if why not in self._said:
            self._said.add(why)
            rank = self._world.session.rank
            print(f"gorun: rank {rank}: tensors on GPUs go by host, not by ipc: {why}", file=sys.stderr)

    def _give_back(self, job: Job) -> None:
        with self._changed:  # a caller that is refused may do it, too
            piece, job.piece = job.piece, None
            self._holding.discard(job)
        if piece is not None:
            self._staging.give_back(piece)

    # The thread.

    def _undecided(self) -> Iterable[Work]:
        if self._tasks:  # what was given to the stream may still write their memory
            with contextlib.suppress(Failed):
                self._stream.synchronize()
        return [task.job for task in self._tasks if not task.job.here]

    def _loop(self) -> None:
        while True:
            called = self._wait_for_calls(0 if self._tasks else None)
            if called is None:
                return
            self._turn(called)

    def _turn(self, called: Sequence[Call]) -> None:
        ended = self._world.session.lost()
        if ended is not None:
            raise Lost(str(ended))
        self._answer(called)
        if any([self._advance(task) for task in list(self._tasks)]):
            self._pause = PAUSE
            return
        waiting = [task.awaited for task in self._tasks]
        if any(isinstance(awaited, Event) for awaited in waiting):
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return
        operations = [call[1] for call in called] + [each for each in waiting if isinstance(each, Operation)]
        if operations:
            operations[0].attend(_LOOK_SECONDS)

    def _answered(self, work: Work, sums: list[int]) -> None:
        """Begin, or leave it to the host, as all ranks do."""
        assert isinstance(work, Job)
        ranks, lacking, serial = sums
        if ranks < self._world.session.size or lacking:  # a rank that has joined adds nothing
            self._give_back(work)
            work.left_to_host()
            return
        self._tasks.append(_Task(work, self._steps(work, f"gorun.gpu.ipc.{serial}")))

    def _advance(self, task: _Task) -> bool:
        """Report whether a job could go on."""
        job = task.job
        try:
            if task.awaited is not None and not task.awaited.over():
                return False
            task.awaited = next(task.steps)
            return True
        except StopIteration:
            pass
        except (errors.GorunError, HorovodInternalError, ValueError) as error:
            if not job.here:
                job.fail(str(error))
        except Exception as error:
            self.failure = self.failure or str(error)
            job.fail(self.failure)
            raise
        self._tasks.remove(task)  # others may read the piece of one that failed as long as the world lasts
        return True

    def _steps(self, job: Job, name: str) -> Steps:
        """Carry out a job that all ranks have called, under a name that no other one has."""
        reached = Event(self.device)
        try:
            failure = yield from self._trying(reached, lambda: self._fill(job))
            pieces = yield from self._pieces(job, f"{name}.pieces")
            failure = failure or (yield from self._trying(reached, lambda: self._reduce(job, pieces)))
            yield from self._exchange(job, name)
            failed = yield from self._sum(f"{name}.reduced", 0, int(bool(failure)))
            if failed:
                if failure:
                    self._say(failure)
                self._give_back(job)  # nobody reads it any more
                job.left_to_host()
                return
            self._copy_out(job, pieces)
            yield job.after
            done = self._start_sum(f"{name}.done", self._group, 0)
            job.launched()
            yield from self._finish(*done)
            self._give_back(job)
        finally:
            reached.close()

    def _trying(self, reached: Event, give: Callable[[], None]) -> Generator[Awaited, None, str]:
        """Give work to the stream and wait for it; return why that was not possible."""
        try:
            give()
            reached.record(self._stream.handle)
        except (Failed, Wrong) as error:
            return str(error)
        yield reached
        return ""

    def _fill(self, job: Job) -> None:
        assert job.piece is not None
        job.before.before(self._stream.handle)
        self._stream.copy(job.piece.address, job.source, job.nbytes)

    def _pieces(self, job: Job, name: str) -> Generator[Awaited, None, list[bytes]]:
        """Return the places of the members' pieces, once all of them are filled."""
        assert job.piece is not None
        block = self._world.alloc(PLACE_BYTES)
        block.view[:] = job.piece.place()
        operation = Operation(self._world, self._group)
        operation.request(constants.ALLGATHER, name, constants.UINT8, (PLACE_BYTES,), block, False)
        handle = operation.launch(lambda results: bytes(results[0].view))
        whole: bytes = yield from self._finish(operation, handle)
        return [whole[at : at + PLACE_BYTES] for at in range(0, len(whole), PLACE_BYTES)]

    def _address(self, job: Job, pieces: Sequence[bytes], index: int) -> int:
        """Return where a member's piece is for this process."""
        assert job.piece is not None
        if index == self._index:
            return job.piece.address
        try:
            return self._opened.find(pieces[index])
        except (Failed, Wrong) as error:
            self._unable = str(error)
            raise

    def _reduce(self, job: Job, pieces: Sequence[bytes]) -> None:
        """Reduce this rank's slice of all pieces into its own one."""
        assert job.piece is not None and job.kernel is not None
        start, _ = self._slice(job, self._index)
        rows = [self._address(job, pieces, i) + start for i in range(len(self._members))]
        scale = 1.0 / len(rows) if job.op == constants.AVERAGE else 1.0
        units = self._part(job.nbytes) // UNIT
        job.kernel.launch(self._stream, job.piece.address + start, rows, units, scale)

    def _exchange(self, job: Job, name: str) -> Steps:
        """Reduce this rank's slice over the GPUs."""
        assert job.piece is not None
        start, nbytes = self._slice(job, self._index)
        count = nbytes // itemsize(job.dtype)
        yield from self._shares.reduce(name, job.dtype, job.op, job.piece.address + start, count)

    def _copy_out(self, job: Job, pieces: Sequence[bytes]) -> None:
        """Put the slices of all members together."""
        for index in range(len(self._members)):
            start, nbytes = self._slice(job, index)
            if nbytes:
                self._stream.copy(job.target + start, self._address(job, pieces, index) + start, nbytes)
        job.after.record(self._stream.handle)

    def _start_sum(self, name: str, group: int, value: int) -> tuple[Operation, int]:
        """Start to add up a number of all ranks of a group, which is a barrier, too."""
        block = self._world.alloc(8)
        block.view[:] = array.array("q", [value]).tobytes()
        operation = Operation(self._world, group)
        operation.request(
            constants.ALLREDUCE, name, constants.INT64, (1,), block, True, op=constants.SUM
        )
        return operation, operation.launch(lambda _: array.array("q", bytes(block.view))[0])

    def _sum(self, name: str, group: int, value: int) -> Generator[Awaited, None, int]:
        """Add up a number of all ranks of a group."""
        total: int = yield from self._finish(*self._start_sum(name, group, value))
        return total

    def _finish(self, operation: Operation, handle: int) -> Generator[Awaited, None, Any]:
        yield operation
        return self._world.synchronize(handle)

    def _drain(self) -> None:
        """Let what runs end, so that others can read this rank's memory to the end."""
        until = time.monotonic() + CLOSE_SECONDS
        while self._tasks and time.monotonic() < until:
            self._turn([])
        if self._tasks:
            self._stop(LEAVING)

    def _end(self) -> None:
        for task in self._tasks:
            with contextlib.suppress(Exception):
                task.steps.close()
        self._tasks.clear()
        try:
            self._stream.synchronize()  # it waits for nobody
        finally:
            self._opened.close()
            self._shares.close()
            self._stream.close()
            # Before the next world gives them out all ranks have left this one: see docs/decisions/0061.
            with self._changed:
                holding = list(self._holding)
            for job in holding:
                self._give_back(job)
