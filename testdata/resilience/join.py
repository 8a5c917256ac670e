"""Train until another rank has joined, and print how long the transfer of the state to it took."""

import hashlib
import os
import time

import gorun.torch as hvd
import torch

MEGABYTES = 32  # of parameters; the optimizer has as many
MORE = 3  # batches, once there are two

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(os.getpid())  # a joiner has other parameters
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(MEGABYTES // 4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class State(hvd.elastic.TorchState):
    """A state that reports the transfer."""

    def sync(self) -> None:
        came_with = self.batch
        hvd.barrier()  # the other may be busy with its start
        begin = time.monotonic()
        super().sync()
        took = time.monotonic() - begin
        moved = sum(t.numel() * t.element_size() for t in self.tensors())
        print(f"rank {hvd.rank()} of {hvd.size()} came with batch {came_with}, goes on with {self.batch}: "
              f"{moved} bytes in {took:.3f} s, {self.digest()}", flush=True)

    def tensors(self) -> list[torch.Tensor]:
        return [*self.model.state_dict().values(),
                *(s["momentum_buffer"] for s in self.optimizer.state.values() if "momentum_buffer" in s)]

    def digest(self) -> str:
        digest = hashlib.sha256()
        for tensor in self.tensors():
            digest.update(tensor.detach().numpy().tobytes())
        return digest.hexdigest()


@hvd.elastic.run
def train(state: State) -> None:
    more = 0
    while more < MORE:
        if state.batch == 0:
            for p in model.parameters():
                p.grad = torch.randn_like(p)
            optimizer.step()
        hvd.allreduce(torch.ones(8), name="batch")
        state.batch += 1
        more += hvd.size() > 1
        if state.batch == 1 or hvd.size() > 1:
            print(f"batch {state.batch} of {hvd.size()}", flush=True)
        time.sleep(0.05)
        state.commit()


train(State(model=model, optimizer=optimizer, batch=0))
