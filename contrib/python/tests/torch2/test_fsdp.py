"""Run by every rank of a real job, with torch 2: FSDP on the engine, in all shapes."""

import sys
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard

sys.path.append(str(Path(__file__).resolve().parent.parent / "mp"))
from test_distributed import make_model, rank, size, train  # noqa: E402


def sharded(**options):
    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    fully_shard(model, **options)
    return train(model, [rank])


def check_hybrid(alone):
    """Two shards, and two of each: fully_shard over a mesh, and FSDP with HYBRID_SHARD."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    assert [dist.get_backend(mesh.get_group(name)) for name in mesh.mesh_dim_names] == ["gorun"] * 2
    for got, want in zip(sharded(mesh=mesh).parameters(), alone):
        assert torch.allclose(got.full_tensor(), want, atol=1e-5), "fully_shard over a mesh"
    model = FullyShardedDataParallel(
        make_model(), process_group=(mesh.get_group("shard"), mesh.get_group("replicate")),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu"), use_orig_params=True,
    )  # fmt: skip
    train(model, [rank])
    with FullyShardedDataParallel.summon_full_params(model):
        for got, want in zip(model.parameters(), alone):
            assert torch.allclose(got, want, atol=1e-5), "HYBRID_SHARD"


alone = [p.detach() for p in train(make_model(), range(size)).parameters()]
for got, want in zip(sharded().parameters(), alone):
    assert torch.allclose(got.full_tensor(), want, atol=1e-5), "fully_shard"
if size == 4:
    check_hybrid(alone)
dist.destroy_process_group()
print(f"rank {rank} of {size}: ok")
