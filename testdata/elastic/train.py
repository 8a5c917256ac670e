"""Train a small model elastically, and say what became of it.

Every batch is the same function of its number, whatever the size of the world, so that the weights at the end
depend only on which batches were committed. The loss is linear in the weights: they wander, and never forget a
batch, as they would if they came to rest.
"""

import argparse
import hashlib
import os
import signal
import sys
import time

import horovod.torch as hvd
import torch

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
args = parser.parse_args()

process = int(os.environ["GORUN_PROCESS"])


def maybe_die(where: str, number: int) -> None:
    """Die here if the command line says so."""
    if f"{process}:{number}:{where}" in args.die:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalState(hvd.elastic.TorchState):
    """A state whose process may end in the middle of keeping it, or of taking it over."""

    def commit(self) -> None:
        maybe_die("before", self.batch)
        self.save()
        maybe_die("after", self.batch)
        self.check_host_updates()

    def sync(self) -> None:
        maybe_die("sync", worlds + 1)
        super().sync()


torch.set_num_threads(1)
torch.manual_seed(1)
hvd.init()
model = torch.nn.Linear(64, 8, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
batch = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    batch = saved["batch"]
state = MortalState(model=model, optimizer=optimizer, batch=batch)
worlds = 0


def ended() -> bool:
    return not args.until or bool(hvd.broadcast_object(os.path.exists(args.until), 0, name="ended"))


def save() -> None:
    """Keep what a job without any process of before goes on from."""
    if args.checkpoint:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "batch": state.batch}
        torch.save(saved, args.checkpoint + ".new")
        os.replace(args.checkpoint + ".new", args.checkpoint)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    global worlds
    worlds += 1
    print(f"process {process} is rank {hvd.rank()} of {hvd.size()} from batch {state.batch}", flush=True)
    while state.batch < args.batches or not ended():
        maybe_die("batch", state.batch)
        source = torch.Generator().manual_seed(state.batch)
        data, pull = torch.randn(4, 64, generator=source), torch.randn(4, 8, generator=source)
        optimizer.zero_grad()
        (model(data) * pull).mean().backward()
        optimizer.step()
        time.sleep(args.pause)
        state.batch += 1
        if hvd.rank() == 0:
            save()
            print(f"batch {state.batch}", flush=True)
        state.commit()


train(state)
norm = sum(p.detach().double().square().sum().item() for p in model.parameters())
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
print(
    f"process {process} ends as rank {hvd.rank()} of {hvd.size()} after {state.batch} batches, {worlds} worlds: "
    f"{norm:.9f} {digest}",
    flush=True,
)
sys.exit(0)
