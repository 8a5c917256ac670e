"""Run by every rank of a real job, with torch 2: what asks a group for which devices it is."""

import tempfile

import torch
from torch import distributed as dist
from torch.distributed import checkpoint
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec

import gorun.torch.distributed  # noqa: F401 (registers the backend)

torch.set_num_threads(1)
dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.group.WORLD
kinds = {"cpu", "cuda"} if torch.cuda.is_available() else {"cpu"}
assert {device.type for device in group._device_types} == kinds
assert set(dist.Backend.backend_capability["gorun"]) == kinds


def check_sharded_tensor():
    """Its rows are on all ranks; rank 0 gathers them."""
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{i}/cpu" for i in range(size)])
    whole = torch.arange(4.0 * size).view(2 * size, 2)
    sharded = sharded_tensor.rand(spec, 2 * size, 2)
    sharded.local_shards()[0].tensor.copy_(whole[2 * rank : 2 * rank + 2])
    out = torch.zeros(2 * size, 2) if rank == 0 else None
    sharded.gather(0, out)
    assert rank or torch.equal(out, whole)


def check_checkpoint(path):
    """Saved while the program goes on, by a group of its own."""
    state = {"weight": torch.full((5,), 3.0), "step": 7}
    saver = dist.new_group()
    checkpoint.async_save(state, checkpoint_id=path, process_group=saver).result()
    loaded = {"weight": torch.zeros(5), "step": 0}
    checkpoint.load(loaded, checkpoint_id=path)
    assert loaded["weight"].tolist() == [3.0] * 5 and loaded["step"] == 7
    checkpoint.save(state, checkpoint_id=path + "/again")


check_sharded_tensor()
directory = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(directory)
check_checkpoint(directory[0])
dist.destroy_process_group()
print(f"rank {rank} of {size}: ok")
