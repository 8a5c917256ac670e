"""Run by every rank of a real job, with torch 2: steps done again with a scaler, and compiled models."""

import os

import torch
from torch import nn

import gorun.torch as hvd
from gorun import errors

STEPS, INFINITE = 14, 11
MOMENTS = "backward", "unscaled", "stepped", "updated", "counted"

os.environ["HOROVOD_ELASTIC"] = "1"
torch.set_num_threads(1)
hvd.init()


def trained(lost=-1, moment=""):
    """Train in as many worlds as that takes; return the weights, the scale, and the number of updates."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100, growth_interval=3)
    worlds = []

    @hvd.elastic.run
    def train(state):
        def at(now):
            if (state.step, now, len(worlds)) == (lost, moment, 1):
                raise hvd.HorovodInternalError("lost") from errors.Aborted("lost")

        worlds.append(state.step)
        while state.step < STEPS:
            optimizer.zero_grad()
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(state.step))
            loss = model(x).square().mean() * (1e38 if state.step == INFINITE else 1.0)
            scaler.scale(loss).backward()
            at("backward")
            scaler.unscale_(optimizer)
            at("unscaled")
            scaler.step(optimizer)
            at("stepped")
            scaler.update()
            at("updated")
            state.step += 1
            at("counted")
            if state.step % 2 == 0:
                state.commit()

    state = hvd.elastic.TorchState(model, optimizer, scaler=scaler, step=0)
    train(state)
    assert worlds in ([0], [0, lost - (moment == "counted")]), (worlds, lost, moment)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return weights, scaler.get_scale(), state._steps.applied


def compiled(given):
    """Train a compiled model of which the state has the original, or that itself."""
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    called = torch.compile(model, backend="eager", fullgraph=True)
    state = hvd.elastic.TorchState(called if given else model, optimizer, step=0)
    state.sync()
    while state.step < 4:
        optimizer.zero_grad()
        called(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
        state.step += 1
        state.commit()
    return state._steps.proven, state._steps.against


want = trained()
assert want[2] == STEPS - 1, want  # the scaler drops one
for lost in 8, INFINITE, INFINITE + 1:
    for moment in MOMENTS:
        got = trained(lost, moment)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:], (lost, moment, got, want)
assert compiled(given=True) == (True, ""), compiled(given=True)
proven, against = compiled(given=False)
assert not proven and "no forward pass" in against, against
hvd.shutdown()
print("ok")
