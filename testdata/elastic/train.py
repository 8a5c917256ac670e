"""Train a small model elastically, and print the result.

Every batch is the same function of its number, whatever the size of the world, so that the weights at the end
depend only on which batches were committed. The loss is linear in the weights: they wander, and never forget a
batch, as they would if they came to rest. With --numpy it is the same model by hand: a rank imports torch for
longer than most tests train.
"""

import argparse
import hashlib
import os
import signal
import sys
import time
import typing

parser = argparse.ArgumentParser()
parser.add_argument("--batches", type=int, default=50)
parser.add_argument("--pause", type=float, default=0.0, help="seconds of each batch")
parser.add_argument(
    "--die",
    action="append",
    default=[],
    metavar="PROCESS:NUMBER:WHERE",
    help="that process kills itself, WHERE is: batch (before the batch of that number), "
    "before or after (the copy that its commit makes), or sync (when it enters its world of that number)",
)
parser.add_argument("--until", default="", help="go on after all batches until this FILE is there, as rank 0 sees it")
parser.add_argument("--checkpoint", default="", help="rank 0 saves each batch to FILE, with which all begin")
parser.add_argument("--numpy", action="store_true", help="train without torch")
args = parser.parse_args()

process = int(os.environ["GORUN_PROCESS"])


def maybe_die(where: str, number: int) -> None:
    """Die here if the command line asks for it."""
    if f"{process}:{number}:{where}" in args.die:
        os.kill(os.getpid(), signal.SIGKILL)


class Mortal:
    """A state whose process may end in the middle of keeping it, or of taking it over."""

    def commit(self) -> None:
        maybe_die("before", self.batch)
        self.save()
        maybe_die("after", self.batch)
        self.check_host_updates()

    def sync(self) -> None:
        maybe_die("sync", worlds + 1)
        super().sync()


class WithTorch:
    """The model, its optimizer and the state of both."""

    def __init__(self) -> None:
        import horovod.torch as hvd
        import torch

        class State(Mortal, hvd.elastic.TorchState):
            pass

        torch.set_num_threads(1)
        torch.manual_seed(1)
        hvd.init()
        self.hvd, self.torch = hvd, torch
        self.broadcast_object = hvd.broadcast_object
        self.model = torch.nn.Linear(64, 8, bias=False)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())
        batch = 0
        if args.checkpoint and os.path.exists(args.checkpoint):
            saved = torch.load(args.checkpoint)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            batch = saved["batch"]
        self.state = State(model=self.model, optimizer=self.optimizer, batch=batch)

    def step(self, batch: int) -> None:
        source = self.torch.Generator().manual_seed(batch)
        data, pull = self.torch.randn(4, 64, generator=source), self.torch.randn(4, 8, generator=source)
        self.optimizer.zero_grad()
        (self.model(data) * pull).mean().backward()
        self.optimizer.step()

    def save(self, file: str) -> None:
        optimizer = self.optimizer.state_dict()
        self.torch.save({"model": self.model.state_dict(), "optimizer": optimizer, "batch": self.state.batch}, file)

    def weights(self) -> "list[typing.Any]":
        return [p.detach().numpy() for p in self.model.parameters()]

    def run(self, train: "typing.Callable[[typing.Any], None]") -> None:
        self.hvd.elastic.run(train)(self.state)


class WithNumPy:
    """The same by hand."""

    def __init__(self) -> None:
        import gorun.elastic
        import gorun.numpy as hvd
        import numpy as np
        from gorun.objects import broadcast_object

        class State(Mortal, gorun.elastic.ObjectState):
            pass

        hvd.init()
        self.hvd, self.np, self.broadcast_object = hvd, np, broadcast_object
        self.elastic = gorun.elastic
        first = np.random.default_rng(1).uniform(-0.125, 0.125, (8, 64)).astype(np.float32)
        saved = {"model": first, "speed": np.zeros_like(first), "batch": 0}
        if args.checkpoint and os.path.exists(args.checkpoint):
            with np.load(args.checkpoint) as file:
                saved = {"model": file["model"], "speed": file["speed"], "batch": int(file["batch"])}
        self.state = State(broadcast_object, hvd.rank, **saved)

    def step(self, batch: int) -> None:
        source = self.np.random.default_rng(batch)
        data = source.standard_normal((4, 64), dtype=self.np.float32)
        pull = source.standard_normal((4, 8), dtype=self.np.float32)
        gradient = self.hvd.allreduce(pull.T @ data / pull.size, op=self.hvd.Average, name="gradient")
        self.state.speed = 0.9 * self.state.speed + gradient
        self.state.model = self.state.model - 0.01 * self.state.speed

    def save(self, file: str) -> None:
        with open(file, "wb") as out:
            self.np.savez(out, model=self.state.model, speed=self.state.speed, batch=self.state.batch)

    def weights(self) -> "list[typing.Any]":
        return [self.state.model]

    def run(self, train: "typing.Callable[[typing.Any], None]") -> None:
        from gorun import basics

        self.elastic.run_fn(train, basics.reset)(self.state)


worlds = 0
job = WithNumPy() if args.numpy else WithTorch()
hvd = job.hvd


def ended() -> bool:
    return not args.until or bool(job.broadcast_object(os.path.exists(args.until), 0, name="ended"))


def save() -> None:
    """Save a checkpoint from which a job continues when all its processes were lost."""
    if args.checkpoint:
        job.save(args.checkpoint + ".new")
        os.replace(args.checkpoint + ".new", args.checkpoint)


def train(state: "typing.Any") -> None:
    global worlds
    worlds += 1
    print(f"process {process} is rank {hvd.rank()} of {hvd.size()} from batch {state.batch}", flush=True)
    while state.batch < args.batches or not ended():
        maybe_die("batch", state.batch)
        job.step(state.batch)
        time.sleep(args.pause)
        state.batch += 1
        if hvd.rank() == 0:
            save()
            print(f"batch {state.batch}", flush=True)
        state.commit()


job.run(train)
norm = sum((w.astype("float64") ** 2).sum() for w in job.weights())
digest = hashlib.sha256(b"".join(w.tobytes() for w in job.weights())).hexdigest()[:16]
print(
    f"process {process} ends as rank {hvd.rank()} of {hvd.size()} after {job.state.batch} batches, {worlds} worlds: "
    f"{norm:.9f} {digest}",
    flush=True,
)
sys.exit(0)
