"""Run by every rank of a real job: DistributedOptimizer around every optimizer, and its options."""

import torch
from torch import nn

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init(process_sets="dynamic")
rank, size = hvd.rank(), hvd.size()


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def same_everywhere(model, what):
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).reshape(1, -1)
    every = hvd.allgather(flat)
    assert torch.equal(every, flat.expand(size, -1)), f"{what}: ranks have different weights"


def batches(step, ranks):
    for r in ranks:
        yield torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + r))


def train(model, optimizer, ranks, steps=3):
    for step in range(steps):
        sum(model(x).square().mean() for x in batches(step, ranks)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def check(what, make, tolerance, **options):
    """N ranks do what one does that sees all their batches; test_parity.py does so with other options."""
    alone, model = make_model(), make_model()
    plain = make(alone.parameters())
    for step in range(3):
        (sum(alone(x).square().mean() for x in batches(step, range(size))) / size).backward()
        plain.step()
        plain.zero_grad()
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), **options)
    for got, p in zip(train(model, optimizer, [rank]), alone.parameters()):
        error = (got - p.detach()).abs().max().item()
        assert error < tolerance, (what, error)
    same_everywhere(model, what)


# Every optimizer there is, but for those that need sparse gradients or a closure.
found = []
for name, kind in sorted(vars(torch.optim).items()):
    base = torch.optim.Optimizer
    if not isinstance(kind, type) or not issubclass(kind, base) or kind is base:
        continue
    found.append(name)
    if name == "LBFGS":
        continue
    if name == "SparseAdam":
        for as_dense in (False, True):
            table = nn.Embedding(10, 4, sparse=True)
            hvd.broadcast_parameters(table.state_dict(), 0)
            optimizer = hvd.DistributedOptimizer(
                kind(list(table.parameters())), table.named_parameters(), sparse_as_dense=as_dense
            )
            for step in range(4):
                if rank or step % 2:  # a rank without a gradient gets the others'
                    table(torch.tensor([rank, step])).sum().backward()
                if rank or step % 2 or size > 1:
                    optimizer.step()
                optimizer.zero_grad(set_to_none=step == 1)
            same_everywhere(table, name)
    elif name == "Muon":  # takes matrices only
        model = nn.Linear(6, 2, bias=False)
        hvd.broadcast_parameters(model.state_dict(), 0)
        train(model, hvd.DistributedOptimizer(kind(model.parameters()), model.named_parameters()), [rank])
        same_everywhere(model, name)
    else:
        # Rprop goes by signs, and sums of floats round differently in another order.
        check(name, lambda ps, kind=kind: kind(ps, lr=0.01), 1e-3)
assert {"SGD", "Adam", "AdamW", "LBFGS", "SparseAdam", "RMSprop"} <= set(found), found

def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.5)


check("bfloat16", sgd, 0.05, compression=hvd.Compression.bf16)

# Some ranks share one model, all share another: each optimizer is asked for by its members only.
some = hvd.add_process_set(range(size - 1)) if size > 1 else hvd.global_process_set
first, second = torch.nn.Linear(3, 2), torch.nn.Linear(2, 2)
for shared in (first, second):
    hvd.broadcast_parameters(shared.state_dict(), root_rank=0)
start = first.weight.detach().clone()
first_optimizer = hvd.DistributedOptimizer(
    sgd(first.parameters()), first.named_parameters(), process_set=some
)
second_optimizer = hvd.DistributedOptimizer(sgd(second.parameters()), second.named_parameters())
for step in range(3):
    first_optimizer.zero_grad()
    second_optimizer.zero_grad()
    second(first(torch.full((4, 3), float(rank + 1)))).square().sum().backward()
    first_optimizer.step()
    second_optimizer.step()
    if step == 0:
        moved = hvd.allgather((start - first.weight.detach())[None])
        for r in range(1, size - 1):
            assert torch.equal(moved[r], moved[0]), "members take the same step"
        assert size < 3 or not torch.equal(moved[size - 1], moved[0]), "the other rank takes its own"
same_everywhere(second, "after an optimizer of some ranks")

# A graph that differs from step to step and from rank to rank; a layer that no rank uses.
model = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
hvd.broadcast_parameters(model.state_dict(), 0)
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
for step in range(6):
    optimizer.zero_grad()
    x = torch.ones(2, 3)
    for i, layer in enumerate(model[:3]):
        if (step + rank + i) % 3:
            x = layer(x)
    if x.requires_grad:
        x.sum().backward()
    optimizer.step()
same_everywhere(model, "dynamic graph")

# What a script does on one rank alone needs no other rank, or all ranks get an error.


def step_of(model, optimizer, number):
    model(next(batches(number, [rank]))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


class Packed(hvd.Compression.none):
    """A compressor of a script's own: each gradient travels alone."""


class Table(nn.Module):
    """A model whose gradient is sparse, and travels alone."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(9, 6, sparse=True)

    def forward(self, x):
        return self.embedding((x.abs() * 4).long().clamp(max=8))


for passes in (1, 2):  # a state that is loaded in the middle of a step, of several passes too
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=passes
    )
    for step in range(9):
        for part in range(passes):
            model(next(batches(step, [rank]))).square().mean().backward()
            alone = part == 0 and passes == 2 and step == 5  # and nothing is handed over yet
            if rank == 0 and (alone or (part == passes - 1 and step % 4 == 2)):
                optimizer.load_state_dict(optimizer.state_dict())
                optimizer.zero_grad()
                if alone:
                    model(next(batches(step, [rank]))).square().mean().backward()
                else:
                    break
        else:
            optimizer.step()
            optimizer.zero_grad()

model = make_model()
optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
for step in range(6):
    model(next(batches(step, [rank]))).square().mean().backward()
    if step % 2:
        if rank == 0:  # and uses the gradients as they are
            optimizer.load_state_dict(optimizer.state_dict())
        hvd.broadcast_optimizer_state(optimizer, 0)
    optimizer.step()
    optimizer.zero_grad()
same_everywhere(model, "load_state_dict before step()")

for make, options in ((make_model, {}), (make_model, {"compression": Packed}), (Table, {})):
    for change in ("add_param_group", "requires_grad_"):
        model, extra = make(), nn.Linear(1, 1)
        plain = torch.optim.SGD(model.parameters(), lr=0.05)
        if change == "requires_grad_":
            extra.requires_grad_(False)
            plain.add_param_group({"params": list(extra.parameters())})
        optimizer = hvd.DistributedOptimizer(plain, **options)
        for number in range(3):
            step_of(model, optimizer, number)
        if rank == size - 1:
            extra.requires_grad_(True)
            if change == "add_param_group":
                optimizer.add_param_group({"params": list(extra.parameters())})
        told = ""
        for number in range(3):
            try:
                step_of(model, optimizer, number)
            except hvd.HorovodInternalError as error:
                told = str(error)
                optimizer.zero_grad()
                hvd.shutdown()  # as after any failure
                hvd.init()
                break
        assert size == 1 or "add_param_group() or requires_grad_() before the same step" in told, told
        if size > 1 and rank != size - 1:  # then they come there too, and all go on
            extra.requires_grad_(True)
            if change == "add_param_group":
                optimizer.add_param_group({"params": list(extra.parameters())})
        hvd.broadcast_parameters(model.state_dict(), 0)
        for number in range(3):
            step_of(model, optimizer, number)
        same_everywhere(model, f"{change} on one rank, then on all")

# GradScaler unscales gradients inside step(), or before it: they must be reduced by then, without a word from
# the script. Older torch has none for the CPU.
scaler_kind = getattr(getattr(torch, "amp", None), "GradScaler", None)
if scaler_kind is not None:
    for unscale_first in (False, True):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
        scaler = scaler_kind("cpu", init_scale=1024.0)
        for step in range(5):
            loss = model(next(batches(step, [rank]))).square().mean()
            # In one step one rank's gradients overflow, and all must skip it.
            scaler.scale(loss * (float("inf") if step == 2 and rank == 0 else 1.0)).backward()
            if unscale_first:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert scaler.get_scale() == 512.0, scaler.get_scale()
        assert all(p.isfinite().all() for p in model.parameters())
        same_everywhere(model, "GradScaler")

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
