"""Allreduces in three steps: NCCL within each host, gorun between hosts.

A reduce-scatter leaves each rank of a host with a share of the host's sum. It goes to host memory, gorun
reduces it over the ranks that have the same share on other hosts, and it comes back; an all-gather by NCCL
ends it. The share travels in chunks: while gorun has one, the next one comes and the last one goes back. No
communicator spans hosts, so none waits for another host.

The first and the last step are operations of the hosts' groups, in one order of all ranks: see
gorun.gpu.group.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gorun.exceptions import HorovodInternalError
from gorun.gpu import nccl
from gorun.gpu.calls import Names, Work, itemsize
from gorun.gpu.driver import Device, Event, Failed
from gorun.gpu.group import OPS, Group
from gorun.gpu.shares import Shares

if TYPE_CHECKING:
    from gorun.world import World

_LOOK_SECONDS = 0.05  # between two looks at whether the group has ended


class Reduction:
    """An allreduce under way, with the methods of Work for callers."""

    def __init__(
        self, owner: Hierarchy, name: str, dtype: str, op: int, memory: int, nbytes: int,
        share: tuple[int, int],
    ) -> None:  # fmt: skip
        self.name, self.dtype, self.op = name, dtype, op
        self.memory, self.nbytes = memory, nbytes  # of the device
        self.share = share  # address of this rank's share there, and its elements
        self.gather: Callable[[int, int], None] | None = None  # has NCCL do the last step
        self.copy: Callable[[int], None] | None = None  # what follows it
        self._owner = owner
        self._begun = threading.Event()  # the first step has a work
        self._first: Work | None = None
        self._decided = threading.Event()  # the last step has one, or will not
        self._last: Work | None = None
        self._error = ""
        self._result: bool | None = None
        self.waited = False  # its end was seen, by wait() or over(): its name is free

    @property
    def first(self) -> Work:
        """The reduce-scatter."""
        self._begun.wait()
        assert self._first is not None
        return self._first

    @property
    def handle(self) -> int:
        """The handle of the operation by the host that takes its place."""
        return self.first.handle

    def begin(self, first: Work) -> None:
        """Note the first step."""
        self._first = first
        self._begun.set()

    def decide(self, last: Work | None, error: str = "") -> None:
        """Note the last step, or why there is none."""
        self._last, self._error = last, error
        self._decided.set()

    def over(self) -> bool:
        """Report whether wait() would return, or raise, at once."""
        if self.first.over() and (not self.first.here or self._last_over()):
            self.waited = True
        return self.waited

    def wait(self) -> bool:
        """Do what Work.wait() does."""
        if self._result is None:
            try:
                self._result = self.first.wait() and self._end()
            except HorovodInternalError:
                self.waited = True
                if not self.first.here:  # nothing has used the memory
                    self._owner.give_back(self)
                raise
            self.waited = True
            self._owner.give_back(self)
        return self._result

    def _last_over(self) -> bool:
        return self._decided.is_set() and (self._last is None or self._last.over())

    def _end(self) -> bool:
        self._decided.wait()
        if self._last is None:
            raise HorovodInternalError(f"{self.name} on the GPU: {self._error}")
        return self._last.wait()


class Hierarchy:
    """All ranks of a world, each with its own device, on hosts that all have the same number of them."""

    def __init__(
        self, world: World, device: Device, hosts: Sequence[Sequence[int]], library: nccl.Nccl | None = None
    ) -> None:
        """hosts: the ranks of each."""
        self.device = device
        rank = world.session.rank
        self._members = next(list(members) for members in hosts if rank in members)
        self._index = self._members.index(rank)
        peers = [members[self._index] for members in hosts]
        self._shares = Shares(world, device, peers)
        self.group = Group(world, device, library, members=self._members)
        self._free: dict[int, list[int]] = defaultdict(list)  # memory of the device, by size
        self._all: list[int] = []
        self._lock = threading.Lock()
        self._names = Names()
        self._queue: queue.SimpleQueue[Reduction | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="gorun gpu copies", daemon=True)
        self._thread.start()
        world.on_close(self.close)

    @property
    def failure(self) -> str:
        """Return why nothing happens any more, "" if that is not so."""
        return self.group.failure

    def allreduce(
        self, name: str, source: int, target: int, count: int, dtype: str, op: int, stream: int,
        also: object = None, by_host: Callable[[], int] | None = None,
    ) -> Reduction:  # fmt: skip
        """Start to reduce elements of all ranks; see Group.allreduce()."""
        kind, how, size = nccl.DATA_TYPES[dtype], OPS[op], itemsize(dtype)
        ranks = len(self._members)
        part = -(-count // ranks)
        nbytes = 1 << (max(part * ranks * size, 1) - 1).bit_length()  # few sizes: it is used again
        memory = self._take(nbytes)
        share = memory + self._index * part * size
        copy = self.device.driver.call["cuMemcpyAsync"]
        reduction = Reduction(self, name, dtype, op, memory, nbytes, (share, part))

        def scatter(comm: int, own: int) -> None:
            copy(memory, source, count * size, own)
            self.group.call("ncclReduceScatter", memory, share, part, kind, how, comm, own)

        def gather(comm: int, own: int) -> None:
            self.group.call("ncclAllGather", share, memory, part, kind, comm, own)

        def back(own: int) -> None:
            copy(target, memory, count * size, own)

        reduction.gather, reduction.copy = gather, back
        try:
            self._names.take(name, reduction)
            # The thread takes them in the order in which they are launched, which is the same on all ranks.
            first = self.group.start(
                name, (dtype, count, op, also), scatter, stream, lambda _: self._queue.put(reduction), by_host
            )
        except BaseException:
            reduction.waited = True
            self.give_back(reduction)
            raise
        reduction.begin(first)
        return reduction

    def give_back(self, reduction: Reduction) -> None:
        """Take back the memory of an operation that has ended."""
        with self._lock:
            memory, reduction.memory = reduction.memory, 0
            if memory:
                self._free[reduction.nbytes].append(memory)

    def close(self) -> None:
        """End the group, and free the memory."""
        self.group.close()
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for address in self._all:
            with contextlib.suppress(Failed):
                self.device.free(address)
        self._all.clear()
        self._shares.close()

    def _take(self, nbytes: int) -> int:
        with self._lock:
            if self._free[nbytes]:
                return self._free[nbytes].pop()
        with self.device.driver.relaxed():
            address = self.device.alloc(nbytes)
        with self._lock:
            self._all.append(address)
        return address

    # The thread: what lies between the two steps of NCCL, in the order in which all ranks had the first.

    def _serve(self) -> None:
        while True:
            reduction = self._queue.get()
            if reduction is None:
                return
            try:
                self.device.driver.relax()  # what it does would end a capture of the script's
                self._middle(reduction)
            except Exception as error:
                reduction.decide(None, str(error))

    def _middle(self, reduction: Reduction) -> None:
        assert reduction.gather is not None
        reduction.first.wait()
        self._exchange(reduction)
        reduction.decide(
            self.group.start(
                f"{reduction.name}.gather", (reduction.dtype,), reduction.gather, self._shares.back.handle,
                reduction.copy,
            )
        )  # fmt: skip

    def _exchange(self, reduction: Reduction) -> None:
        """Reduce this rank's share over the hosts."""
        address, count = reduction.share
        steps = self._shares.reduce(reduction.name, reduction.dtype, reduction.op, address, count)
        with contextlib.closing(steps):
            for awaited in steps:
                if isinstance(awaited, Event):
                    awaited.synchronize()
                    continue
                while not awaited.over():
                    awaited.attend(_LOOK_SECONDS)
                    if self.group.ended():
                        raise HorovodInternalError(self.group.failure)
