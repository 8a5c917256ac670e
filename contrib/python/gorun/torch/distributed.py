"""A backend for torch.distributed: import gorun.torch.distributed, then

    torch.distributed.init_process_group("gorun")

and DDP, FSDP and torch.distributed's own functions run on gorun's engine, in groups of some of the ranks too.
The job is started by gorun, whose environment holds what init_process_group() reads.
"""

from __future__ import annotations

import collections
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import distributed as dist

from gorun import basics, collectives, constants, process_sets
from gorun.features import is_version_greater_equal_than
from gorun.torch.memory import Torch, overwrite

if TYPE_CHECKING:
    from gorun.process_sets import ProcessSet
    from gorun.world import World

_torch = Torch()
POLL_SECONDS = 1e-3  # between two looks at a transfer that may take only so long
WORKS = 256  # that are kept for C++
FULL_WORKS = 8  # whose futures it may still ask for
_OPS = {
    "SUM": collectives.Sum, "AVG": collectives.Average, "MIN": collectives.Min, "MAX": collectives.Max,
    "PRODUCT": collectives.Product, "BAND": collectives.BitAnd, "BOR": collectives.BitOr,
    "BXOR": collectives.BitXor,
}  # fmt: skip


class _Future(torch.futures.Future):
    """The result of an operation. The first to come for it brings it.

    That is the thread of the group or who waits: callbacks of other futures run in that thread, and may wait.
    """

    def __init__(self, world: World, handle: int, result: Any) -> None:
        super().__init__()
        self.failed = False
        self._claim = threading.Lock()
        self._world = world
        self._handle = handle
        self._result = result

    def bring(self) -> None:
        """Wait for the operation, unless somebody else does, and call those who want to know of its end."""
        if not self._claim.acquire(blocking=False):
            return
        result, self._result = self._result, None
        try:
            self._world.synchronize(self._handle)
        except Exception as error:
            self.failed = True
            self.set_exception(error)
        except BaseException:  # interrupted: it can be waited for again
            self._result = result
            self._claim.release()
            raise
        else:
            self.set_result(result)

    def arrived(self) -> bool:
        """Report whether there is nothing to wait for. Who brings it knows that alone."""
        return self.done() or (not self._claim.locked() and self._world.poll(self._handle))

    def wait(self) -> Any:
        """Return the result, or raise what the operation failed with."""
        self.bring()
        return super().wait()


class _Nothing(_Future):
    """The future of an operation that has ended, and has nothing to tell."""

    def __init__(self) -> None:
        torch.futures.Future.__init__(self)
        self.failed = False
        self.set_result(None)

    def bring(self) -> None:
        """Do nothing."""


# What the thread of a group has to bring; None at the end.
_Waiting = queue.SimpleQueue[Optional[_Future]]


class _Work(dist.Work):
    """An operation under way. Its end is a future's, its failure an exception of wait()."""

    def __init__(self, future: _Future) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the operation has ended, or raise what it failed with. No time is no limit."""
        if timeout:
            over = threading.Event()
            self._future.add_done_callback(lambda _: over.set())
            _in_time(over.wait, timeout)
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        """Return the future of the result."""
        return self._future

    def result(self) -> Any:
        """Return the tensors, as Join asks for them, when the operation has ended."""
        return self._future.wait()

    def is_completed(self) -> bool:
        """Report whether the operation has ended."""
        return self._future.done()

    def is_success(self) -> bool:
        """Report whether it has ended well."""
        return self._future.done() and not self._future.failed

    def references(self) -> int:
        """Count what refers to it in Python, the call included."""
        return sys.getrefcount(self)

    def empty(self) -> None:
        """Let go of the tensors of an operation that has ended: C++ still waits for it, but asks no more."""
        if not self._future.failed:
            self._future = _NOTHING


class _Works:
    """The works of a group for C++, which does not keep the Python part of a work that it gets alive.

    It asks for its future right away, and may wait for it later. Until then Python has no other reference to
    it, and its tensors would stay.
    """

    def __init__(self) -> None:
        self._works: collections.deque[_Work] = collections.deque(maxlen=WORKS)
        self._full: collections.deque[_Work] = collections.deque(maxlen=WORKS)

    def append(self, work: _Work) -> None:
        """Keep a work; let go of the tensors of earlier ones that are over and that Python has dropped."""
        self._works.append(work)
        self._full.append(work)
        i = 0
        while i < len(self._full) - FULL_WORKS:
            if self._full[i].is_completed() and self.references(i) <= _UNUSED:
                self._full[i].empty()
                del self._full[i]
            else:
                i += 1

    def references(self, i: int) -> int:
        """Count what refers to the i-th work that has its tensors."""
        return self._full[i].references()


class _Transfer(dist.Work):
    """A tensor on its way between two ranks. It is waited for by the one who asks: others may be later."""

    def __init__(self, future: _Future, under_way: set[_Transfer]) -> None:
        super().__init__()
        self._future = future
        self._awaited = False  # by a thread of its own
        self._under_way = under_way
        under_way.add(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the tensor has arrived, or raise why it has not."""
        if timeout:
            _in_time(self._arrives, timeout)
        self._under_way.discard(self)
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        """Return the future of the tensor."""
        if not self._awaited:
            self._awaited = True
            threading.Thread(target=self._bring, name="gorun torch.distributed transfer", daemon=True).start()
        return self._future

    def _bring(self) -> None:
        self._future.bring()
        self._under_way.discard(self)

    def _arrives(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.is_completed():
            if time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def is_completed(self) -> bool:
        """Report whether wait() would return at once."""
        return self._future.arrived()


_NOTHING = _Nothing()


def _unused() -> int:
    works = _Works()
    works.append(_Work(_NOTHING))
    return works.references(0)


_UNUSED = _unused()  # which counts a work has that only a group has


class ProcessGroup(dist.ProcessGroup):
    """Ranks of the job. One thread waits for what is under way, in the order of its start."""

    def __init__(self, members: ProcessSet) -> None:
        super().__init__(members.rank(), members.size())
        self._world = basics.world()
        self._members = members
        self._number = members.group()
        self._works = _Works()
        self._transfers: set[_Transfer] = set()
        self._waiting: _Waiting = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_finish, args=(self._waiting,), name="gorun torch.distributed", daemon=True
        )
        self._thread.start()
        # Not every torch calls shutdown().
        weakref.finalize(self, self._waiting.put, None)

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """Return the name of the backend."""
        return "gorun"

    # What torch asks of a backend: has it batches of transfers of its own, and is split_group() there.
    supports_coalescing = False
    supports_splitting = False

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_name(self) -> str:
        """The name that torch gave the group. It asks for it even after it has forgotten the group itself."""
        return self._group_name

    def shutdown(self) -> None:
        """End the thread, once what is under way has ended. destroy_process_group() calls this."""
        self._waiting.put(None)
        self._thread.join(5)  # what never ends, ends with the session

    def _name(self) -> str:
        # Ranks must call in the same order, as torch demands, whatever else they do in between.
        return f"torch.{self._world.serial(f'torch.distributed.{self._number}')}"

    def _job_rank(self, rank: int) -> int:
        return self._members.members()[rank]

    def _work(self, handle: int, result: Any, sample: torch.Tensor | None = None) -> dist.Work:
        future = _Future(self._world, handle, result)
        if sample is not None and sample.device.type != "cpu":
            future.bring()  # here, on the caller's stream
        else:
            self._waiting.put(future)
        work = _Work(future)
        self._works.append(work)
        return work

    # Reductions.

    def _reduce(
        self, tensors: Sequence[torch.Tensor], op: Any, then: Callable[[Any], Any] | None = None
    ) -> int:
        targets = list(tensors) if then is None else None
        return collectives.allreduce(
            _torch, list(tensors), targets, name=self._name(), op=_op(op),
            process_set=self._members, then=then or (lambda outputs: outputs),
        )  # fmt: skip

    def allreduce(self, tensors: Any, opts: Any = None) -> dist.Work:
        """See torch.distributed.all_reduce."""
        tensors = _list(tensors)
        return self._work(self._reduce(tensors, opts), tensors, tensors[0])

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        """Reduce several tensors."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any) -> dist.Work:
        """See torch.distributed.reduce."""
        tensors = _list(tensors)

        def keep(outputs: Sequence[torch.Tensor]) -> None:
            if self.rank() == opts.rootRank:
                _copy(tensors, outputs)

        return self._work(self._reduce(tensors, opts, keep), tensors, tensors[0])

    def _reduce_scatter(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], opts: Any) -> dist.Work:
        outputs = [output for output, _ in pairs]
        rows = [whole.reshape(self.size(), -1) for _, whole in pairs]
        op = _op(opts)
        if op in (collectives.Sum, collectives.Average):

            def scattered(results: Sequence[torch.Tensor]) -> None:
                _copy(outputs, results)

            handle = collectives.reducescatter(
                _torch, rows, name=self._name(), op=op, process_set=self._members, then=scattered
            )
        else:
            handle = self._reduce(
                rows, opts, lambda results: _copy(outputs, [result[self.rank()] for result in results])
            )
        return self._work(handle, outputs, outputs[0])

    def _reduce_scatter_base(self, output: torch.Tensor, whole: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._reduce_scatter([(output, whole)], opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        """See torch.distributed.reduce_scatter."""
        outputs = _list(outputs)
        inputs = inputs if isinstance(inputs[0], (list, tuple)) else [inputs]
        wholes = [torch.cat([part.reshape(-1) for part in parts]) for parts in inputs]
        return self._reduce_scatter(list(zip(outputs, wholes)), opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """Reduce and scatter several tensors."""
        return self._reduce_scatter(list(zip(outputs, inputs)), opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # What only moves data.

    def broadcast(self, tensors: Any, opts: Any) -> dist.Work:
        """See torch.distributed.broadcast."""
        tensors = _list(tensors)
        root = self._job_rank(opts if isinstance(opts, int) else opts.rootRank)
        handle = collectives.broadcast(
            _torch, tensors, tensors, root, name=self._name(), process_set=self._members
        )
        return self._work(handle, tensors, tensors[0])

    def _gather(
        self, tensors: Sequence[torch.Tensor], then: Callable[[list[torch.Tensor]], Any], result: Any
    ) -> dist.Work:
        rows = [tensor.reshape(1, -1) for tensor in tensors]
        handle = collectives.allgather(
            _torch, rows, name=self._name(), process_set=self._members,
            then=lambda gathered: then([whole for whole, _ in gathered]),
        )  # fmt: skip
        return self._work(handle, result, tensors[0])

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._gather([tensor], lambda wholes: _copy([output], wholes), [output])

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """Gather several tensors."""
        return self._gather(inputs, lambda wholes: _copy(outputs, wholes), outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """Gather several tensors: those of rank i are in outputs[i]."""

        def deal(wholes: Sequence[torch.Tensor]) -> None:
            for i, whole in enumerate(wholes):
                _copy([parts[i] for parts in outputs], whole)

        return self._gather(inputs, deal, outputs)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        """See torch.distributed.all_gather."""
        outputs = outputs if isinstance(outputs[0], (list, tuple)) else [outputs]

        def deal(wholes: Sequence[torch.Tensor]) -> None:
            for parts, whole in zip(outputs, wholes):
                _copy(parts, whole)

        return self._gather(_list(inputs), deal, outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        """See torch.distributed.gather."""

        def deal(wholes: Sequence[torch.Tensor]) -> None:
            if self.rank() == opts.rootRank:
                _copy(outputs[0], wholes[0])

        return self._gather(_list(inputs), deal, outputs)

    def gather_single(self, output: torch.Tensor | None, tensor: torch.Tensor, opts: Any) -> dist.Work:
        """See torch.distributed.gather_single."""

        def keep(wholes: Sequence[torch.Tensor]) -> None:
            if self.rank() == opts.rootRank and output is not None:
                _copy([output], wholes)

        return self._gather([tensor], keep, [output])

    gather_into_tensor = gather_single

    def _exchange(
        self, tensor: torch.Tensor, splits: Sequence[int], then: Callable[[torch.Tensor], Any], result: Any
    ) -> dist.Work:
        handle = collectives.alltoall(
            _torch, tensor, splits, name=self._name(), process_set=self._members,
            then=lambda received: then(received[0]),
        )  # fmt: skip
        return self._work(handle, result, tensor)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        """See torch.distributed.scatter."""
        outputs = _list(outputs)
        if self.rank() == opts.rootRank:
            data = torch.cat([part.reshape(-1) for part in inputs[0]])
        else:
            data = outputs[0].new_empty(0)
        splits = [data.numel() // self.size()] * self.size()
        return self._exchange(data, splits, lambda received: _copy(outputs, [received]), outputs)

    def alltoall_base(
        self, output: torch.Tensor, tensor: torch.Tensor, output_splits: Any, splits: Any, opts: Any = None
    ) -> dist.Work:
        """See torch.distributed.all_to_all_single."""
        even = [tensor.shape[0] // self.size()] * self.size()
        return self._exchange(tensor, splits or even, lambda received: _copy([output], [received]), [output])

    all_to_all_single = alltoall_base

    def alltoall(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """See torch.distributed.all_to_all."""
        data = torch.cat([part.reshape(-1) for part in inputs])

        def deal(received: torch.Tensor) -> None:
            _copy(outputs, received.split([output.numel() for output in outputs]))

        return self._exchange(data, [part.numel() for part in inputs], deal, outputs)

    def barrier(self, opts: Any = None) -> dist.Work:
        """See torch.distributed.barrier."""
        return self.allreduce([torch.zeros(1)])

    def send(self, tensors: Any, rank: int, tag: int = 0) -> dist.Work:
        """See torch.distributed.send. It ends when the other rank has the tensor."""
        (tensor,) = _list(tensors)
        name = self._tagged(self.rank(), rank, tag)
        handle = collectives.send(_torch, tensor, self._job_rank(rank), name=name)
        return _Transfer(_Future(self._world, handle, [tensor]), self._transfers)

    def recv(self, tensors: Any, rank: int, tag: int = 0) -> dist.Work:
        """See torch.distributed.recv."""
        (tensor,) = _list(tensors)
        name = self._tagged(rank, self.rank(), tag)
        handle = collectives.recv(_torch, tensor, self._job_rank(rank), name=name)
        return _Transfer(_Future(self._world, handle, [tensor]), self._transfers)

    def recv_anysource(self, *_: Any) -> dist.Work:
        """Raise NotImplementedError."""
        raise NotImplementedError("backend gorun receives from a rank that is named: recv(tensor, src)")

    def _tagged(self, source: int, target: int, tag: int) -> str:
        way = f"{self._number}.{source}.{target}.{tag}"
        return f"torch.{way}.{self._world.serial(f'torch.distributed.{way}')}"


def _finish(waiting: _Waiting) -> None:
    while True:
        future = waiting.get()
        if future is None:
            return
        future.bring()
        del future  # it holds tensors


def _in_time(over: Callable[[float], bool], timeout: timedelta) -> None:
    if not over(timeout.total_seconds()):
        raise RuntimeError(f"backend gorun: an operation is not over after {timeout.total_seconds():g} s")


def _op(opts: Any) -> int:
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM if opts is None else opts)
    kinds = {int(kind): name for name, kind in dist.ReduceOp.RedOpType.__members__.items()}
    asked = kinds.get(int(getattr(op, "op", op)), str(op))
    if asked not in _OPS:
        raise ValueError(f"backend gorun cannot reduce by {asked}: it knows {', '.join(_OPS)}")
    return _OPS[asked]


def _list(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _copy(targets: Sequence[torch.Tensor], sources: Any) -> None:
    for target, source in zip(targets, sources):
        overwrite(target, source.reshape(target.shape))


def _create(store: dist.Store, rank: int, size: int, timeout: Any) -> Any:
    basics.init()
    if not dist.is_initialized() and (rank, size) != (basics.rank(), basics.size()):
        raise ValueError(
            f"init_process_group: rank {rank} of {size}, but gorun started this as rank {basics.rank()} of "
            f"{basics.size()}: use gorun to start the job, and no other launcher"
        )
    if not dist.is_initialized() or basics.size() == 1:
        return ProcessGroup(process_sets.global_process_set)
    ranks, number = _meet(store, rank, size)
    if ranks != sorted(ranks):
        raise ValueError(f"new_group: backend gorun keeps ranks in ascending order, which {ranks} are not")
    return ProcessGroup(process_sets.declare(ranks, number))


def _meet(store: dist.Store, rank: int, size: int) -> tuple[list[int], int]:
    """Return which ranks of the job the members of a new group are, and the number that the first gives it.

    torch makes a group without the other ranks, so only the members take part, by its own store.
    """
    number = constants.DECLARED
    if rank == 0:
        number += basics.rank() << 15 | basics.world().serial("torch.distributed.groups") % (1 << 15)
    store.set(f"gorun.{rank}", f"{basics.rank()} {number}")
    members = [store.get(f"gorun.{other}").decode().split() for other in range(size)]
    return [int(of) for of, _ in members], int(members[0][1])


# Before torch 2, a backend is for every device.
_DEVICES = {"devices": ["cpu", "cuda"]} if is_version_greater_equal_than(torch.__version__, "2.0") else {}
dist.Backend.register_backend("gorun", _create, **_DEVICES)
