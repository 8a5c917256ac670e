"""Ranks of accelerate find each other as they do under `accelerate launch`, also where no host has a GPU."""

import torch
from accelerate import Accelerator

accelerator = Accelerator()
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1.0]), "sum")
print(f"accelerate: rank {accelerator.process_index} of {accelerator.num_processes} has {total.item():g}", flush=True)
model = accelerator.prepare(torch.nn.Linear(1, 1))
assert isinstance(model, torch.nn.parallel.DistributedDataParallel), "each rank would train alone"
