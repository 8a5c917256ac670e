"""A process group of torch.distributed, over gorun's collectives."""

from __future__ import annotations

import collections
import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from gorun import basics, collectives, constants, process_sets, turns
from gorun.torch import sparse
from gorun.torch.distributed.monitor import monitor
from gorun.torch.distributed.works import (
    Arrivals,
    Carried,
    Future,
    Incoming,
    Limit,
    Transfer,
    Waiting,
    Work,
    Works,
)
from gorun.torch.elastic.updates import Sums
from gorun.torch.memory import Torch, overwrite

if TYPE_CHECKING:
    from gorun.process_sets import ProcessSet

_torch = Torch()
_OPS = {
    "SUM": collectives.Sum, "AVG": collectives.Average, "MIN": collectives.Min, "MAX": collectives.Max,
    "PRODUCT": collectives.Product, "BAND": collectives.BitAnd, "BOR": collectives.BitOr,
    "BXOR": collectives.BitXor,
}  # fmt: skip


def _outside_graphs(cls: type) -> type:
    """Keep torch.compile from tracing into the methods that torch calls: compiled code calls them.

    torch.compiler.disable() does that. It imports the compiler, which takes seconds, so a method disables
    itself only once the program has imported it.
    """
    methods = {
        name: method for name, method in vars(cls).items()
        if callable(method) and not name.startswith("__") and hasattr(dist.ProcessGroup, name)
    }  # fmt: skip

    def until_then(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if "torch._dynamo" not in sys.modules:
                return method(*args, **kwargs)
            disable = getattr(torch, "compiler", sys.modules["torch._dynamo"]).disable
            for each in methods:
                setattr(cls, each, disable(methods[each]))
            return getattr(cls, name)(*args, **kwargs)

        call._torchdynamo_disable = True  # type: ignore[attr-defined]
        return call

    for name, method in methods.items():
        setattr(cls, name, until_then(name, method))
    return cls


@_outside_graphs
class ProcessGroup(dist.ProcessGroup):
    """A group of ranks of the job. One thread waits for its operations, in the order of their start."""

    def __init__(self, members: ProcessSet, store: dist.Store, timeout: timedelta | None) -> None:
        super().__init__(members.rank(), members.size())
        self._world = basics.world()
        self._members = members
        self._store = store
        self._limit = Limit(timeout)
        number = members.group()
        # All groups of all ranks have the same number, and each counts its operations anew.
        self._label = f"{number}.{self._world.serial(f'torch.distributed.groups.{number}')}"
        self._served = -1  # the last rank that recv_anysource() received from
        self._arrivals: dict[int, Arrivals] = collections.defaultdict(Arrivals)
        self._works = Works()
        self._transfers: set[Transfer] = set()
        self._waiting = Waiting()
        # Where the ranks meet to carry large allreduces themselves, which all call in the same order.
        self._whole = not number  # all ranks are in it
        self._turns = None if number else turns.turns(_torch, f"torch.{self._label}.turns")
        # Not every torch calls shutdown().
        weakref.finalize(self, self._waiting.put, None)

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """Return the name of the backend."""
        return "gorun"

    # Capabilities that torch queries: whether a backend batches transfers itself, and has split_group().
    supports_coalescing = False
    supports_splitting = True

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in devices()]

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_name(self) -> str:
        """The name that torch gave the group. torch reads it even after it has removed the group."""
        return self._group_name

    def get_group_store(self) -> dist.Store:
        """Return the store that the group was made with."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long operations may take, including those under way."""
        self._limit.seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """End the thread, once all operations have ended. destroy_process_group() calls this."""
        self._waiting.join()

    # Groups made from this one by dist.split_group(). They need no connections, and so no other ranks.

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None:
        """Return a group of some of the ranks, None if this one is not among them."""
        if self.rank() not in ranks:
            return None
        store = dist.PrefixStore(f"{group_name}/", self._store)
        group = ProcessGroup(meet(store, list(ranks).index(self.rank()), len(ranks)), store, timeout)
        group._set_group_name(group_name or "")
        if group_desc:
            group._set_group_desc(group_desc)
        return group

    def perform_nocolor_split(self, *_: Any) -> None:
        """Do nothing: other ranks make their group without this one."""

    eager_connect_single_device = perform_nocolor_split

    def _name(self) -> str:
        # Ranks must call in the same order, as torch demands, whatever else they do in between.
        self._limit.check()
        return f"torch.{self._label}.{self._world.serial(f'torch.distributed.{self._label}')}"

    def _one_each(self, what: str, *lists: Sequence[Any]) -> None:
        """Raise ValueError if a list does not have one tensor for each rank."""
        for each in lists:
            if len(each) != self.size():
                raise ValueError(f"{what} has {len(each)} tensors, not one for each of {self.size()} ranks")

    def _job_rank(self, rank: int) -> int:
        return self._members.members()[rank]

    def _future(self, what: str, handle: int, result: Any, sample: torch.Tensor) -> Future:
        return Future(self._world, handle, result, what, self._limit, sample.device)

    def _work(self, what: str, handle: int, result: Any, sample: torch.Tensor) -> dist.Work:
        future = self._future(what, handle, result, sample)
        if sample.device.type != "cpu" and not self._world.on_device(handle):
            future.bring()  # by the host: here, on the caller's stream
        else:
            self._waiting.put(future)
        work = Work(future)
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
        first, turns = tensors[0], self._turns
        if self._whole:
            Sums.begun += 1
        dense = len(tensors) == 1 and first.is_cpu and first.layout is torch.strided
        if turns is not None and dense and turns.suit(first, _op(opts)):
            return self._carried(turns, tensors, _op(opts))
        handle = self._add(first, opts) if first.is_sparse else self._reduce(tensors, opts)
        return self._work("all_reduce", handle, tensors, first)

    def _carried(self, turns: turns.Turns, tensors: list[torch.Tensor], op: int) -> dist.Work:
        name = self._name()

        def start() -> int:
            return collectives.allreduce(_torch, tensors, tensors, name=name, op=op)

        def carry(seconds: float) -> bool:
            return turns.carry(tensors[0], op, name, seconds)

        future = Carried(self._world, tensors, "all_reduce", self._limit, self._waiting, carry, start)
        self._waiting.put(future)
        work = Work(future)
        self._works.append(work)
        return work

    def _add(self, tensor: torch.Tensor, opts: Any) -> int:
        """Start to add up sparse tensors."""
        op = _op(opts)
        if op not in (collectives.Sum, collectives.Average):
            raise ValueError("backend gorun reduces sparse tensors by SUM and AVG only")
        divisor = self.size() if op == collectives.Average else 1

        def add(gathered: Sequence[Any]) -> None:
            (indices, _), (values, _) = gathered
            with torch.no_grad():  # a sparse tensor's data are other tensors
                tensor.copy_(sparse.total(indices, values, tensor.shape, divisor))

        return collectives.allgather(
            _torch, sparse.rows(tensor), name=self._name(), process_set=self._members, then=add
        )

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        """Reduce several tensors."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any) -> dist.Work:
        """See torch.distributed.reduce."""
        tensors = _list(tensors)

        def keep(outputs: Sequence[torch.Tensor]) -> None:
            if self.rank() == opts.rootRank:
                _copy(tensors, outputs)

        return self._work("reduce", self._reduce(tensors, opts, keep), tensors, tensors[0])

    def _reduce_scatter(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], opts: Any) -> dist.Work:
        outputs = [output for output, _ in pairs]
        rows = [whole.reshape(self.size(), -1) for _, whole in pairs]
        op = _op(opts)
        if op in (collectives.Sum, collectives.Average):

            def scattered(results: Sequence[torch.Tensor]) -> None:
                _copy(outputs, results)

            handle = collectives.reducescatter(
                _torch, rows, name=self._name(), op=op, process_set=self._members, then=scattered,
                targets=outputs,
            )  # fmt: skip
        else:
            handle = self._reduce(
                rows, opts, lambda results: _copy(outputs, [result[self.rank()] for result in results])
            )
        return self._work("reduce_scatter", handle, outputs, outputs[0])

    def _reduce_scatter_base(self, output: torch.Tensor, whole: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._reduce_scatter([(output, whole)], opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        """See torch.distributed.reduce_scatter."""
        outputs = _list(outputs)
        inputs = inputs if isinstance(inputs[0], (list, tuple)) else [inputs]
        self._one_each("reduce_scatter's input", *inputs)
        wholes = [torch.cat([part.reshape(-1) for part in parts]) for parts in inputs]
        return self._reduce_scatter(list(zip(outputs, wholes)), opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """Reduce and scatter several tensors."""
        return self._reduce_scatter(list(zip(outputs, inputs)), opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # Operations that only move data.

    def broadcast(self, tensors: Any, opts: Any) -> dist.Work:
        """See torch.distributed.broadcast."""
        tensors = _list(tensors)
        root = self._job_rank(opts if isinstance(opts, int) else opts.rootRank)
        handle = collectives.broadcast(
            _torch, tensors, tensors, root, name=self._name(), process_set=self._members
        )
        return self._work("broadcast", handle, tensors, tensors[0])

    def _gather(
        self, what: str, tensors: Sequence[torch.Tensor], then: Callable[[list[torch.Tensor]], Any],
        result: Any, targets: Sequence[torch.Tensor] | None = None,
    ) -> dist.Work:  # fmt: skip
        rows = [tensor.reshape(1, -1) for tensor in tensors]
        handle = collectives.allgather(
            _torch, rows, name=self._name(), process_set=self._members, targets=targets,
            then=lambda gathered: then([whole for whole, _ in gathered]),
        )  # fmt: skip
        return self._work(what, handle, result, tensors[0])

    def _join(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> dist.Work:
        return self._gather("all_gather", inputs, lambda wholes: _copy(outputs, wholes), outputs, outputs)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> dist.Work:
        return self._join([output], [tensor])

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """Gather several tensors."""
        return self._join(outputs, inputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """Gather several tensors: outputs[i] gets the tensors of rank i."""
        self._one_each("all_gather's output", outputs)

        def deal(wholes: Sequence[torch.Tensor]) -> None:
            for i, whole in enumerate(wholes):
                _copy([parts[i] for parts in outputs], whole)

        return self._gather("all_gather", inputs, deal, outputs)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        """See torch.distributed.all_gather."""
        outputs = outputs if isinstance(outputs[0], (list, tuple)) else [outputs]
        self._one_each("all_gather's output", *outputs)

        def deal(wholes: Sequence[torch.Tensor]) -> None:
            for parts, whole in zip(outputs, wholes):
                _copy(parts, whole)

        return self._gather("all_gather", _list(inputs), deal, outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        """See torch.distributed.gather."""
        if self.rank() == opts.rootRank:
            self._one_each("gather's output", outputs[0])

        def deal(wholes: Sequence[torch.Tensor]) -> None:
            if self.rank() == opts.rootRank:
                _copy(outputs[0], wholes[0])

        return self._gather("gather", _list(inputs), deal, outputs)

    def gather_single(self, output: torch.Tensor | None, tensor: torch.Tensor, opts: Any) -> dist.Work:
        """See torch.distributed.gather_single."""

        def keep(wholes: Sequence[torch.Tensor]) -> None:
            if self.rank() == opts.rootRank and output is not None:
                _copy([output], wholes)

        return self._gather("gather", [tensor], keep, [output])

    gather_into_tensor = gather_single

    def _exchange(
        self, what: str, tensor: torch.Tensor, splits: Sequence[int], received: Sequence[int],
        then: Callable[[torch.Tensor], Any], result: Any, target: torch.Tensor | None = None,
    ) -> dist.Work:  # fmt: skip
        handle = collectives.alltoall(
            _torch, tensor, splits, name=self._name(), process_set=self._members, received=received,
            target=target, then=lambda rows: then(rows[0]),
        )  # fmt: skip
        return self._work(what, handle, result, tensor)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> dist.Work:
        """See torch.distributed.scatter."""
        outputs = _list(outputs)
        if self.rank() == opts.rootRank:
            self._one_each("scatter's input", inputs[0])
            data = torch.cat([part.reshape(-1) for part in inputs[0]])
        else:
            data = outputs[0].new_empty(0)
        splits = [data.numel() // self.size()] * self.size()
        received = [outputs[0].numel() if peer == opts.rootRank else 0 for peer in range(self.size())]
        return self._exchange(
            "scatter", data, splits, received, lambda rows: _copy(outputs, [rows]), outputs, outputs[0]
        )

    def alltoall_base(
        self, output: torch.Tensor, tensor: torch.Tensor, output_splits: Any, splits: Any, opts: Any = None
    ) -> dist.Work:
        """See torch.distributed.all_to_all_single."""
        even, received = ([t.shape[0] // self.size()] * self.size() for t in (tensor, output))
        return self._exchange(
            "all_to_all", tensor, splits or even, output_splits or received,
            lambda rows: _copy([output], [rows]), [output], output,
        )  # fmt: skip

    all_to_all_single = alltoall_base

    def alltoall(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        """See torch.distributed.all_to_all."""
        self._one_each("all_to_all's list", inputs, outputs)
        data = torch.cat([part.reshape(-1) for part in inputs])
        sent, received = ([part.numel() for part in parts] for parts in (inputs, outputs))

        def deal(rows: torch.Tensor) -> None:
            _copy(outputs, rows.split(received))

        return self._exchange("all_to_all", data, sent, received, deal, outputs)

    def barrier(self, opts: Any = None) -> dist.Work:
        """See torch.distributed.barrier."""
        tensor = torch.zeros(1)
        return self._work("barrier", self._reduce([tensor], None), [tensor], tensor)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """See torch.distributed.monitored_barrier: rank 0 names the ranks that are missing, and all raise.

        It goes by torch's store, and so leaves nothing under way in the group.
        """
        seconds = self._limit.seconds if timeout is None else timeout.total_seconds()
        monitor(
            dist.PrefixStore(f"gorun.{self._label}", self._store),
            self._world.serial(f"torch.monitored.{self._label}"),
            self.rank(),
            self.size(),
            seconds,
            wait_all_ranks,
        )

    # Between two ranks.

    def send(self, tensors: Any, rank: int, tag: int = 0) -> dist.Work:
        """See torch.distributed.send. It ends when the other rank has the tensor."""
        (tensor,) = _list(tensors)
        name = self._tagged(self.rank(), rank, tag)
        handle = collectives.send(_torch, tensor, self._job_rank(rank), name=name)
        future = self._future(f"send to rank {rank}", handle, [tensor], tensor)
        return Transfer(future, self._transfers, self.rank())

    def recv(self, tensors: Any, rank: int, tag: int = 0) -> dist.Work:
        """See torch.distributed.recv."""
        (tensor,) = _list(tensors)
        name = self._tagged(rank, self.rank(), tag)
        handle = collectives.recv(_torch, tensor, self._job_rank(rank), name=name)
        future = self._future(f"recv from rank {rank}", handle, [tensor], tensor)
        return Transfer(future, self._transfers, rank)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> dist.Work:
        """See torch.distributed.recv without a source. Ranks that send at the same time take turns."""
        self._limit.check()
        # The name of a send to this rank contains this, between the sender's rank and a number.
        name = f".{self._job_rank(self.rank())}.torch.{self._label}.{tag}."

        def look() -> Transfer | None:
            senders = [self._members.members().index(rank) for rank in self._world.session.senders(name)]
            if not senders:
                return None
            self._served = min(senders, key=lambda rank: (rank - self._served - 1) % self.size())
            return self.recv(tensors, self._served, tag)

        return Incoming(look, self._limit, self._arrivals[tag])

    def _tagged(self, source: int, target: int, tag: int) -> str:
        self._limit.check()
        way = f"{self._label}.{tag}"
        return f"torch.{way}.{self._world.serial(f'torch.distributed.{source}.{target}.{way}')}"


def devices() -> list[str]:
    """Return the kinds of devices that can hold tensors on this machine."""
    return ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]


def meet(store: dist.Store, rank: int, size: int) -> ProcessSet:
    """Return the members of a new group of this size, in which this process is the rank-th.

    torch makes a group without the other ranks, so only the members take part, by its own store: each says
    which rank of the job it is, and the first gives the group its number.
    """
    number = constants.DECLARED
    if rank == 0:
        number += basics.rank() << 15 | basics.world().serial("torch.distributed.groups") % (1 << 15)
    # A restarted program may have the same store, and its groups the same names.
    key = f"gorun.{getattr(dist.group.WORLD, '_label', '')}"
    store.set(f"{key}.{rank}", f"{basics.rank()} {number}")
    members = [store.get(f"{key}.{other}").decode().split() for other in range(size)]
    ranks = [int(of) for of, _ in members]
    if ranks != sorted(ranks):
        raise ValueError(f"backend gorun keeps a group's ranks in ascending order, which {ranks} are not")
    return process_sets.declare(ranks, int(members[0][1]))


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
        if target.data_ptr() != source.data_ptr() or not target.numel():  # otherwise NCCL wrote it there
            overwrite(target, source.reshape(target.shape))
