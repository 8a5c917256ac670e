"""The Trainer of transformers keeps the process group that is there: gorun's."""

import dataclasses
import tempfile

import gorun.torch.distributed  # noqa: F401
import torch
from torch import distributed as dist
from transformers import Trainer, TrainingArguments

dist.init_process_group("gorun")
rank, size = dist.get_rank(), dist.get_world_size()


class Model(torch.nn.Module):
    """Differs from rank to rank, until DDP has made it the same."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


data = [{"x": torch.tensor([i / 32, 1.0]), "labels": torch.tensor([i % 3.0])} for i in range(32)]
names = {field.name for field in dataclasses.fields(TrainingArguments)}
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=3, per_device_train_batch_size=2, report_to=[], save_strategy="no", disable_tqdm=True,
        **{"use_cpu" if "use_cpu" in names else "no_cuda": True},
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=data)
    trainer.train()
assert isinstance(trainer.model_wrapped, torch.nn.parallel.DistributedDataParallel), "each rank trained alone"
assert (arguments.world_size, dist.get_backend()) == (size, "gorun")
weight = trainer.model.layer.weight.detach()
weights = [torch.empty_like(weight) for _ in range(size)]
dist.all_gather(weights, weight)
assert all(torch.equal(other, weight) for other in weights), weights
total = torch.tensor(rank + 1)
dist.all_reduce(total)
print(f"transformers: rank {rank} of {size} has {total.item()}", flush=True)
