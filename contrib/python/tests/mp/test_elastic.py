"""Run by every rank of a real job: elastic training. Worlds begin anew, with the same ranks."""

import itertools
import os

import torch
from torch import nn

import gorun.torch as hvd
from gorun import basics
from gorun.session import HostsChanged

STEPS = 24


def step(model, optimizer, index):
    """One step whose gradients, averaged over the ranks, do not depend on their number."""
    generator = torch.Generator().manual_seed(index)
    x = torch.randn(6, 4, generator=generator)
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def make():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def undisturbed():
    model, optimizer = make()
    for index in range(STEPS):
        step(model, optimizer, index)
    return model.state_dict()


def main():
    torch.set_num_threads(1)
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    expected = undisturbed()
    model, plain = make()
    if rank > 0:
        for parameter in model.parameters():
            parameter.data.fill_(rank)  # what rank 0 has is what counts
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(list(range(4 * size)), shuffle=False)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, step=rank, notes=[])
    worlds = []

    @hvd.elastic.run
    def train(state):
        worlds.append((hvd.rank(), hvd.size(), state.step))
        while state.step < STEPS:
            if state.step == 7 and len(worlds) == 1:  # all ranks, in the middle of a step
                optimizer.zero_grad()
                model(torch.ones(1, 4)).sum().backward()
                hvd.allreduce_async(torch.ones(5), name="never waited for")
                raise hvd.HorovodInternalError("all failed")
            if state.step == 11 and len(worlds) == 2 and rank == size - 1:
                raise hvd.HorovodInternalError("only I failed")  # the others learn of it by their operations
            if state.step == 15 and len(worlds) == 3 and rank == 0:
                # The launcher's word, as if it had just arrived. Only the root's counts.
                told = itertools.chain([[HostsChanged(2, 3)]], itertools.repeat([]))
                basics.world().session.news = told.__next__
            step(model, optimizer, state.step)
            state.step += 1
            state.notes.append(state.step)
            if state.step % 3 == 0:
                state.commit()
        return "done"

    os.environ["HOROVOD_ELASTIC"] = "1"
    assert train(state) == "done"
    starts = [start for _, _, start in worlds]
    # A script that goes back itself gets its last copy, the first time perhaps one before its last commit.
    assert starts[1] in (0, 3, 6) and starts == [0, starts[1], 9, 18], starts
    assert {(r, n) for r, n, _ in worlds} == {(rank, size)}, worlds
    assert state.notes == list(range(1, STEPS + 1)), state.notes
    for name, value in model.state_dict().items():
        assert torch.allclose(value, expected[name], atol=1e-5), name
    states = hvd.allgather_object([value.tolist() for value in model.state_dict().values()])
    assert all(other == states[0] for other in states), "ranks ended with different weights"

    # The sampler: after a new start the rest is dealt out, and nothing twice.
    half = sampler.get_indices(0, 2)
    sampler.record_batch(0, 2)
    state.commit()
    state.on_reset()
    rest = list(sampler)
    everything = sorted(i for part in hvd.allgather_object(half + rest) for i in part)
    assert everything == list(range(4 * size)), everything
    hvd.shutdown()
    print(f"rank {rank} of {size}: ok")


if __name__ == "__main__":
    main()
