"""Train elastically with a learning rate that follows a schedule; process 1 dies in the middle."""

import os
import signal

import horovod.torch as hvd
import torch

BATCHES = 40

torch.set_num_threads(1)
hvd.init()
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, scheduler=scheduler, batch=0)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    while state.batch < BATCHES:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).mean().backward()
        optimizer.step()
        state.scheduler.step()
        state.batch += 1
        if state.batch == 12 and os.environ.get("GORUN_PROCESS") == "1":  # steps since batch 10 are gone with it
            os.kill(os.getpid(), signal.SIGKILL)
        if state.batch % 5 == 0:
            state.commit()


train(state)
same = state.scheduler is scheduler and scheduler.optimizer is optimizer
print(f"done rank {hvd.rank()} of {hvd.size()}: rate {optimizer.param_groups[0]['lr']!r} same {same}", flush=True)
