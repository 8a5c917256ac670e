"""Ranks of DeepSpeed find each other as they do under its own launcher."""

import deepspeed
import torch

deepspeed.init_distributed(dist_backend="gloo", verbose=False)
rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
total = torch.tensor([rank + 1.0])
torch.distributed.all_reduce(total)
print(f"deepspeed: rank {rank} of {size} has {total.item():g}")
