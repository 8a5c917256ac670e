"""Ranks of accelerate find each other as they do under `accelerate launch`."""

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1.0]), "sum")
print(f"accelerate: rank {accelerator.process_index} of {accelerator.num_processes} has {total.item():g}")
