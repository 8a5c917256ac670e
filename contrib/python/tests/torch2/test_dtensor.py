"""Run by every rank of a real job, with torch 2: distributed tensors on the engine, against plain ones."""

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import gorun.torch.distributed  # noqa: F401 (registers the backend)

torch.set_num_threads(1)
dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
PLACEMENTS = Shard(0), Shard(1), Replicate()


def tensor(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def check_placements():
    """From each placement to each other; rows that do not come out even, too."""
    for rows in (4 * size, 2 * size + 1):
        whole = tensor(rows, 2 * size)
        for one in PLACEMENTS:
            there = distribute_tensor(whole, mesh, [one])
            assert torch.equal(there.full_tensor(), whole)
            for other in PLACEMENTS:
                assert torch.equal(there.redistribute(mesh, [other]).full_tensor(), whole), (one, other)
    parts = torch.distributed.tensor.DTensor.from_local(torch.full((size, 2), rank + 1.0), mesh, [Partial()])
    for other in PLACEMENTS:
        total = parts.redistribute(mesh, [other]).full_tensor()
        assert total.tolist() == [[size * (size + 1) / 2] * 2] * size, other


def check_arithmetic():
    """Products, sums and their gradients, of all pairs of placements."""
    left, right = tensor(2 * size, 4 * size), tensor(4 * size, 2 * size + 2)
    left.requires_grad_()
    want = left @ right
    want.square().mean().backward()
    for a in PLACEMENTS:
        for b in PLACEMENTS:
            mine = distribute_tensor(left.detach(), mesh, [a]).requires_grad_()
            got = mine @ distribute_tensor(right, mesh, [b])
            assert torch.allclose(got.full_tensor(), want, atol=1e-5), (a, b)
            got.square().mean().backward()
            assert torch.allclose(mine.grad.full_tensor(), left.grad, atol=1e-5), (a, b)
            assert torch.allclose(got.sum(0).full_tensor(), want.sum(0), atol=1e-4), (a, b)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 4 * size), nn.ReLU(), nn.Linear(4 * size, 8))


def check_parallel():
    """A network whose layers are cut, by columns and by rows, and one that is there on all ranks."""
    data = tensor(4, 8)
    alone, cut, copied = make_model(), make_model(), make_model()
    parallelize_module(cut, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    distribute_module(copied, mesh)
    for model in (alone, cut, copied):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            given = distribute_tensor(data, mesh, [Replicate()]) if model is copied else data
            out = model(given)
            out.square().mean().backward()
            optimizer.step()
    for model in (cut, copied):
        for got, want in zip(model.parameters(), alone.parameters()):
            assert torch.allclose(got.full_tensor(), want, atol=1e-5)


check_placements()
check_arithmetic()
check_parallel()
dist.destroy_process_group()
print(f"rank {rank} of {size}: ok")
