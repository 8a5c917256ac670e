"""Give the state of rank 0 to all: how long does it take, and is it the same everywhere?"""

import argparse
import hashlib
import time

import gorun.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=int, default=32, help="of parameters; the optimizer has as many")
args = parser.parse_args()

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(hvd.rank())
layers = [torch.nn.Linear(1024, 1024, bias=False) for _ in range(args.megabytes // 4)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
if hvd.rank() == 0:  # a rank that is new has no state yet
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
extra = torch.full((1 << 20,), float(hvd.rank()))
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=hvd.rank(), extra=extra)
hvd.barrier()
for _ in range(3):
    begin = time.monotonic()
    # sync() ends with save(), a copy in memory without any transfer; its time is printed too.
    state.sync()
    hvd.barrier()
    took = time.monotonic() - begin
    if hvd.rank() == 0:
        moved = 2 * args.megabytes * (1 << 20) + extra.numel() * 4
        print(f"sync moved {moved} bytes in {took:.3f} s", flush=True)
        begin = time.monotonic()
        state.save()
        print(f"of which save took {time.monotonic() - begin:.3f} s", flush=True)
digest = hashlib.sha256()
for value in [*model.state_dict().values(), *(s["momentum_buffer"] for s in optimizer.state.values()), state.extra]:
    digest.update(value.detach().numpy().tobytes())
print(f"rank {hvd.rank()} has {digest.hexdigest()}", flush=True)
