"""Train with torch while ranks and hosts are lost at seeded moments, and check afterwards what each step was made of.

    gorun --min-np 1 … python3 exact.py --log DIR --faults 50
    python3 exact.py --log DIR --check

A world has one fault: at a step and a moment that seed and epoch decide, one rank dies, or two at once, or all that
runs on a host. A second rank may die when the next world takes over the state, or within a second. The power of a
host is taken by whoever has started the job: a file DIR/strike.EPOCH names the host, or the launcher, whose host is
meant then. With --evacuate nothing is lost: the file names a host to drain, and the next one when it is gone. Each
rank notes in DIR what it gives to each step, and the weights after it.
--check holds that against the same training without a fault in one process: each sample counts in one step, the steps
follow each other, no loss repeats more than one, and the weights are equal bit by bit. For that the gradients are
rounded to few bits, so that it does not matter in which order they are added.
"""

import argparse
import collections
import hashlib
import json
import math
import os
import random
import signal
import socket
import sys
import threading
import time
import typing
from pathlib import Path
from unittest import mock

import gorun.torch as hvd
import torch
from gorun import basics
from gorun.sampling import ExactSampler, Permutation
from gorun.torch.distributed import elastic
from torch import distributed as dist
from torch import nn

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--log", type=Path, required=True)
parser.add_argument("--faults", type=int, default=5)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--check", action="store_true")
parser.add_argument("--launcher", action="store_true", help="lose the launcher's host, first of all")
parser.add_argument("--ddp", action="store_true", help="sum gradients by DDP")
parser.add_argument("--evacuate", action="store_true", help="hosts are drained, and nothing is lost")
parser.add_argument("--no-power", action="store_true", help="no host loses its power")
parser.add_argument("--pause", type=float, default=0.02, help="seconds of each step")
args = parser.parse_args()

SAMPLES, BATCH = 1009, 7
AFTER = 25  # steps before the first fault: the script has committed by then
MOMENTS = "forward", "backward", "applied", "metric", "counted", "commit", "committing", "committed", "any"
KINDS = "a rank", "two ranks", "a host", "the host of rank 0", "the power of a host", "sync", "soon"

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)  # what the last bits of a gradient are may depend on where it lies in memory
torch.manual_seed(3)
data, labels = torch.randn(SAMPLES, 8), torch.randint(4, (SAMPLES,))
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
for p in model.parameters():
    p.register_hook(lambda grad: torch.round(grad * 4096) / 4096)
sampler = ExactSampler(SAMPLES, BATCH, seed=args.seed)
sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(samples: "list[int]", size: int) -> torch.Tensor:
    """Return this rank's part of the mean loss of a batch."""
    loss = nn.functional.cross_entropy(State.net(data[samples]), labels[samples])
    return loss * sampler.weight() / size


def digest() -> str:
    """Return a hash of the weights."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]


class Log:
    """What this process gives and gets, a line each; the kernel has a line when the process is killed."""

    def __init__(self) -> None:
        args.log.mkdir(exist_ok=True)
        name = f"{os.environ['GORUN_PROCESS']}.{os.getpid()}.jsonl"
        self._file = open(args.log / name, "wb", buffering=0)

    def __call__(self, what: str, **fields: typing.Any) -> None:
        self._file.write(json.dumps({"what": what, **fields}).encode() + b"\n")


def pending() -> bool:
    """Report whether a host is about to lose its power, or be drained."""
    return any(args.log.glob("strike.*"))


def die(kind: str) -> None:
    """Have this rank end at once, or all that gorun runs on its host. Nothing else is lost with a host's power."""
    if pending():
        return
    log("fault", kind=kind, epoch=State.epoch, time=time.time())
    if "host" in kind:
        daemon = os.getppid()
        stat = Path(f"/proc/{daemon}/stat").read_text()
        for pid in int(stat.rpartition(")")[2].split()[1]), daemon:  # its supervisor first
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Fault:
    """What happens in a world, as far as it happens to this rank."""

    def __init__(self, epoch: int, hosts: "list[str]") -> None:
        """hosts: of all ranks."""
        rng, rank = random.Random(f"{args.seed} {epoch}"), hvd.rank()
        kinds = [kind for kind in KINDS if not (args.no_power and "power" in kind)]
        self.after, self.moment, self.kind = rng.randrange(12), rng.choice(MOMENTS), rng.choice(kinds)
        self.host = rng.choice(hosts)
        if args.launcher and (epoch == 1 or self.kind == "the power of a host"):
            self.kind = "the launcher and its host"
        order, most = rng.sample(range(len(hosts)), len(hosts)), max(len(hosts) - 2, 0)
        if self.kind in ("the host of rank 0", "the launcher and its host"):
            order = [0]  # which only gives the order to lose the launcher
        if "host" in self.kind:
            order = [of for of in order if hosts.count(hosts[of]) <= most][:1]
        victims = order[: min(most, 2 if self.kind in ("two ranks", "sync", "soon") else 1)]
        self.mine, second = rank in victims, rank in victims[1:]
        self.power = {"the power of a host": hosts[rank], "the launcher and its host": "launcher"}.get(self.kind)
        self.delay, self.in_sync = rng.random() * 0.06, second and self.kind == "sync"
        if self.in_sync:
            self.mine = False
        elif second and self.kind == "soon":
            self.moment, self.delay = "any", rng.random()

    def evacuates(self, step: int) -> bool:
        """Have the host drained, if none is being drained now."""
        if not args.evacuate or step < self.after:
            return False
        idle = hvd.rank() == 0 and not pending()
        due = bool(hvd.allreduce(torch.tensor([int(idle)]), op=hvd.Max, name="idle").item())
        if due and hvd.rank() == 0:
            (args.log / f"strike.{State.epoch}").write_text(self.host + "\n")
        return due

    def at(self, moment: str, step: int) -> None:
        """Strike if this is the moment."""
        if args.evacuate or not self.mine or step < self.after:
            return
        if moment != ("forward" if self.moment == "any" else self.moment) or pending():
            return
        self.mine = self.power == "launcher"
        if self.power:
            log("fault", kind=self.kind, epoch=State.epoch, time=time.time())
            (args.log / f"strike.{State.epoch}").write_text(self.power + "\n")
            # A launcher's host without ranks ends no world. Then this rank does, later.
            self.kind, self.power, self.after = "a rank", "", step + 200
        elif self.moment == "any":
            threading.Timer(self.delay, die, [self.kind]).start()
        else:
            die(self.kind)


class State(hvd.elastic.TorchState):
    """Counts the losses, and has a rank die in the middle of sync() or commit()."""

    epoch = losses = 0
    net: nn.Module = model
    dies = False  # in the next world

    @staticmethod
    def at(moment: str) -> None:
        """Strike if this is the moment."""

    def restore(self) -> None:
        State.losses += 1
        super().restore()

    def check_host_updates(self) -> None:
        State.at("committing")
        super().check_host_updates()

    def sync(self) -> None:
        if self.dies:
            die("sync")
        super().sync()


def summed(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum gradients by DDP without dividing them, as hvd.Sum does."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda of: of.value()[0])


def train(state: State) -> None:
    State.epoch, size = basics.world().session.epoch, hvd.size()
    if args.ddp:
        State.net = nn.parallel.DistributedDataParallel(model)
        State.net.register_comm_hook(None, summed)
    epoch = State.epoch
    log("world", epoch=epoch, size=size, at=[sampler.epoch, sampler.position])
    State.losses = int(hvd.allreduce(torch.tensor([State.losses]), op=hvd.Max, name="losses").item())

    def over() -> bool:
        return (state.moves if args.evacuate else State.losses) >= args.faults

    fault = None if over() else Fault(epoch, hvd.allgather_object(socket.gethostname(), name="hosts"))
    State.dies = fault is not None and fault.in_sync and not args.evacuate
    until, begun = sampler.epoch + 1, -(AFTER if state._steps.applied < AFTER else 0)

    def at(moment: str) -> None:
        if fault is not None:
            fault.at(moment, begun)

    State.at = staticmethod(at)
    while not over() or sampler.epoch < until:
        for samples in loader:
            place = [sampler.epoch, sampler.position]
            mine = samples.tolist() if sampler.weight() else []
            log("gave", epoch=epoch, rank=hvd.rank(), size=size, at=place, samples=mine)
            optimizer.zero_grad()
            loss = loss_of(samples, size)
            at("forward")
            loss.backward()
            at("backward")
            before = state._steps.applied
            optimizer.step()
            if state._steps.applied > before:
                log("applied", epoch=epoch, size=size, at=place, number=before, weights=digest(), time=time.time())
            at("applied")
            hvd.allreduce(loss.detach(), name="metric")
            at("metric")
            sampler.advance()
            state.step += 1
            begun += 1
            if not over() and fault is not None:
                state.moves += fault.evacuates(begun)
            at("counted")
            if state.step % 10 == 0:
                at("commit")
                state.commit()
                at("committed")
            time.sleep(args.pause)
        sampler.next_epoch()


def check() -> None:
    """Check what the ranks have noted, and train it again."""
    lines = []
    for file in args.log.glob("*.jsonl"):
        lines += [json.loads(line) for line in file.read_bytes().splitlines() if line.endswith(b"}")]
    gave: dict[tuple[int, ...], dict[int, list[int]]] = collections.defaultdict(dict)
    applied: dict[int, dict[str, typing.Any]] = {}
    steps, faults = [], []  # epoch and time
    when: dict[int, float] = {}  # all ranks had made an update
    starts, last = {}, {}
    for line in lines:
        epoch, at = line["epoch"], tuple(line.get("at", ()))
        if line["what"] == "fault":
            faults.append((line["time"], epoch, line["kind"]))
        elif line["what"] == "world":
            starts.setdefault(epoch, set()).add(at)
        elif line["what"] == "gave":
            gave[(epoch, *at)][line["rank"]] = line["samples"]
            last[epoch] = max(last.get(epoch, at), at)
        else:
            steps.append((epoch, line.pop("time")))
            when[line["number"]] = max(when.get(line["number"], 0), steps[-1][1])
            other = applied.setdefault(line["number"], line)
            assert other == line, f"ranks differ after update {line['number']}: {line} and {other}"
    assert sorted(applied) == [*range(len(applied))], "an update is missing"
    where, weights = (0, 0), None
    for number in range(len(applied)):
        line = applied[number]
        assert tuple(line["at"]) == where, f"update {number} is of {line['at']}, after that follows {where}"
        parts = gave[(line["epoch"], *where)]
        assert sorted(parts) == [*range(line["size"])], f"update {number}: ranks {sorted(parts)} gave something"
        whole = min(BATCH * line["size"], SAMPLES - where[1])
        order = Permutation(SAMPLES, (args.seed << 32) + where[0]).between(where[1], where[1] + whole).tolist()
        given = [sample for rank in range(line["size"]) for sample in parts[rank]]
        assert given == order, f"update {number}: {given}, want {order}"
        weights = replay(where, line["size"])
        assert weights == line["weights"], f"update {number}: weights {line['weights']}, replayed {weights}"
        where = (where[0], where[1] + whole) if where[1] + whole < SAMPLES else (where[0] + 1, 0)
    again = 0
    for before, epoch in zip(sorted(starts), sorted(starts)[1:]):
        assert len(starts[epoch]) == 1, f"world {epoch} begins at {starts[epoch]}"
        (start,) = starts[epoch]
        if before in last and start[1] < SAMPLES:  # else it ended before its first step, or at the end of an epoch
            assert start >= last[before], f"world {before} had begun {last[before]}, world {epoch} begins at {start}"
            again += start == last[before]
    if args.evacuate:
        assert again == 0, f"{again} steps begun twice"
        print_pauses(applied, when)
    took: dict[str, list[float]] = collections.defaultdict(list)
    times = collections.Counter(epoch for _, epoch, _ in faults)
    for since, epoch, kind in faults:
        if "launcher" in kind and times[epoch] > 1:
            continue  # its host had no ranks, and the world went on
        for of in kind, "all":
            took[of].append(min((at for e, at in steps if e > epoch and at > since), default=math.inf) - since)
    for kind, seconds in took.items():
        print(f"{kind}: {len(seconds)}, and to the next step {spread(seconds)}")
    print(f"{len(applied)} updates in {len(starts)} worlds, {again} steps begun twice: weights {weights}")


def print_pauses(applied: "dict[int, dict[str, typing.Any]]", when: "dict[int, float]") -> None:
    """Print how long the steps took between which the world changed, and the others."""
    pauses: dict[str, list[float]] = collections.defaultdict(list)
    for number in range(1, len(applied)):
        before, line = applied[number - 1], applied[number]
        more = line["size"] - before["size"]
        kind = "a smaller world" if more < 0 else "a larger world" if more > 0 else "a world of the same size"
        kind = kind if line["epoch"] != before["epoch"] else "the same world"
        pauses[kind].append(when[number] - when[number - 1])
    for kind, seconds in pauses.items():
        print(f"{kind}: {len(seconds)} steps after the one before: {spread(seconds)}")


def spread(seconds: "list[float]") -> str:
    """Return how long something took."""
    p50, p99 = (sorted(seconds)[int(share * (len(seconds) - 1))] for share in (0.5, 0.99))
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s, at most {max(seconds):.2f} s"


def replay(where: "tuple[int, int]", size: int) -> str:
    """Train a batch as so many ranks would; return the weights."""
    sampler.epoch, sampler.position = where
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for rank in range(size):
        with mock.patch.multiple(basics, rank=lambda rank=rank: rank, size=lambda: size):
            sgd.zero_grad()
            loss_of(next(iter(sampler)), size).backward()
        for total, p in zip(sums, model.parameters()):
            total += p.grad
    for total, p in zip(sums, model.parameters()):
        p.grad = total
    sgd.step()
    return digest()


if args.check:
    check()
    sys.exit()
hvd.init()
log = Log()
optimizer = sgd
if not args.ddp:
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters(), op=hvd.Sum)
loader = torch.utils.data.DataLoader(torch.arange(SAMPLES), batch_sampler=sampler)
run = elastic.run if args.ddp else hvd.elastic.run
run(train)(State(model, optimizer, sampler=sampler, step=0, moves=0))
print(f"done rank {hvd.rank()} of {hvd.size()}: {State.losses} losses", flush=True)
