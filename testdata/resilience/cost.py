"""Measure what it costs to be able to go back to the beginning of any step: CPU time of the added code, in a world of
one.

It prints a line for the shapes of ResNet-50's weights and buffers, and one for a small network on the digits of MNIST,
whose whole step is timed as well.
"""

import os
import time

import gorun.torch as hvd
import torch
from torch import nn

STEPS = 300


def resnet50() -> nn.Module:
    """Return layers with the shapes of ResNet-50's, in no order that would compute anything."""
    layers, width = [nn.Conv2d(3, 64, 7, bias=False), nn.BatchNorm2d(64)], 64
    for planes, blocks in (64, 3), (128, 4), (256, 6), (512, 3):
        for block in range(blocks):
            convs = [(width, planes, 1), (planes, planes, 3), (planes, 4 * planes, 1)]
            if block == 0:
                convs.append((width, 4 * planes, 1))
            for before, after, kernel in convs:
                layers += [nn.Conv2d(before, after, kernel, bias=False), nn.BatchNorm2d(after)]
            width = 4 * planes
    return nn.Sequential(*layers, nn.Linear(width, 1000))


def mnist() -> nn.Module:
    """Return a network for digits of 28 by 28."""
    layers = nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(576, 10)
    return nn.Sequential(*layers)


def state_of(model: nn.Module) -> hvd.elastic.TorchState:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0)
    state.sync()
    return state


def added(state: hvd.elastic.TorchState) -> float:
    """Return the seconds of a step that the added code takes, with a commit in each tenth."""
    steps = state._steps
    begin = time.thread_time()
    for _ in range(STEPS):
        steps.forward(state.model)
        steps.summed()
        steps.before_update(False, True)
        steps.after_update()
        state.batch += 1
        if state.batch % 10 == 0:
            steps.commit()
    return (time.thread_time() - begin) / STEPS


def trained(state: hvd.elastic.TorchState) -> float:
    """Return the seconds of a whole step."""
    images, digits = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    begin = time.thread_time()
    for _ in range(STEPS):
        state.optimizer.zero_grad()
        nn.functional.cross_entropy(state.model(images), digits).backward()
        state.optimizer.step()
        state.batch += 1
    return (time.thread_time() - begin) / STEPS


os.environ["HOROVOD_ELASTIC"] = "1"  # in a job of a fixed size there is nothing to measure
hvd.init()
torch.set_num_threads(1)
for make in resnet50, mnist:
    state = state_of(make())
    added(state)
    cost = min(added(state) for _ in range(3))
    begin = time.thread_time()
    state._copy()
    copy = time.thread_time() - begin
    weights, buffers = len([*state.model.parameters()]), len([*state.model.buffers()])
    what = f"{make.__name__}: {weights} weights, {buffers} buffers"
    print(f"{what}: {cost * 1e6:.0f} us a step; a copy takes {copy * 1e3:.1f} ms")
whole = trained(state)
print(f"mnist: a step of 64 takes {whole * 1e3:.2f} ms, so that is {100 * cost / whole:.2f} %")
