"""Broadcasts of parameters, optimizer state and objects."""

import unittest
from unittest import mock

from tests_path import need_torch

torch = need_torch()

from fake import run_ranks  # noqa: E402
from torch import nn  # noqa: E402

import gorun.torch as hvd  # noqa: E402
from gorun import collectives  # noqa: E402


def net(rank):
    generator = torch.Generator().manual_seed(rank)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    module[1].num_batches_tracked += rank
    return module


def flat(value):
    """The leaves of a state, for comparison."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value, key=str) for leaf in [key, *flat(value[key])]]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat(item)]
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.shape, value.flatten().tolist()]
    return [value]


class ParametersTest(unittest.TestCase):
    def test_state_dict_names_and_parameters(self):
        takes = {
            "state_dict": lambda module: module.state_dict(),
            "named_parameters": lambda module: module.named_parameters(),
            "list of named parameters": lambda module: list(module.named_parameters()),
            "parameters": lambda module: module.parameters(),
            "list of parameters": lambda module: list(module.parameters()),
        }
        for what, take in takes.items():
            with self.subTest(what):

                def body(rank, take=take):
                    module = net(rank)
                    hvd.broadcast_parameters(take(module), root_rank=1)
                    assert flat(list(module.parameters())) == flat(list(net(1).parameters()))
                    tracked = module[1].num_batches_tracked.item()
                    assert tracked == (1 if what == "state_dict" else rank)  # noqa: B023

                run_ranks(3, body)

    def test_in_batches(self):
        def body(rank):
            tensors = [torch.full((i,), float(rank), dtype=torch.float64) for i in range(40)]
            hvd.broadcast_parameters(tensors, 0)
            assert not any(t.any() for t in tensors)

        with mock.patch.object(collectives, "BATCH_BYTES", 64):
            run_ranks(2, body)

    def test_not_parameters(self):
        def body(rank):
            for bad in (None, 5, torch.ones(2), torch.nn.Sequential(torch.nn.Linear(1, 1))):
                with self.assertRaises(ValueError):
                    hvd.broadcast_parameters(bad, 0)

        run_ranks(1, body)


class OptimizerStateTest(unittest.TestCase):
    MAKE = {
        "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
        "adam": lambda ps: torch.optim.Adam(ps, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
        "lbfgs": lambda ps: torch.optim.LBFGS(ps, lr=0.5, max_iter=3),
        "rprop": lambda ps: torch.optim.Rprop(ps, etas=(0.4, 1.3)),
    }

    def test_state_and_options_become_those_of_the_root(self):
        for name, make in self.MAKE.items():
            for wrapped in (False, True):
                with self.subTest(name, wrapped=wrapped):

                    def body(rank, make=make, wrapped=wrapped):
                        module = net(rank)
                        optimizer = make(module.parameters())
                        if rank == 0:  # only the root has trained
                            for _ in range(2):
                                optimizer.step(lambda: loss(module, optimizer))
                            optimizer.param_groups[0]["lr"] = 0.125
                        if wrapped:
                            optimizer = hvd.DistributedOptimizer(optimizer, module.named_parameters())
                        before = [p.detach().clone() for p in module.parameters()]
                        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
                        assert optimizer.param_groups[0]["lr"] == 0.125
                        assert all(torch.equal(a, b) for a, b in zip(before, module.parameters()))
                        state = optimizer.state_dict()
                        assert state["state"], "no state arrived"
                        return flat(state)

                    states = run_ranks(3, body)
                    self.assertEqual(states[1], states[0])
                    self.assertEqual(states[2], states[0])

    def test_a_fresh_optimizer_stays_fresh(self):
        def body(rank):
            optimizer = torch.optim.Adam(net(rank).parameters(), lr=0.1 * (rank + 1))
            hvd.broadcast_optimizer_state(optimizer, 1)
            assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.2

        run_ranks(2, body)

    def test_a_fresh_optimizer_leaves_zero_gradients(self):
        """As Horovod's does: scripts touch p.grad before their first backward()."""

        def body(rank):
            module = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1), nn.Linear(1, 1))
            frozen = module[2].bias.requires_grad_(False)
            module[2].weight.grad = torch.ones(1, 1)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            hvd.broadcast_optimizer_state(optimizer, 0, model=module)
            assert frozen.grad is None
            assert module[0].weight.grad.is_sparse and module[0].weight.grad._nnz() == 0
            for p in module[1].parameters():
                assert p.grad is not None and torch.equal(p.grad, torch.zeros_like(p))
            assert module[2].weight.grad.item() == 1, "a gradient that was there is lost"
            embedding = nn.Embedding(5, 2)
            hvd.broadcast_optimizer_state(torch.optim.SparseAdam(embedding.parameters()), 0)
            assert embedding.weight.grad.is_sparse
            module(torch.tensor([1, 3])).sum().backward()  # takes them as they are
            assert module[0].weight.grad.to_dense()[:, 0].count_nonzero() == 2

        run_ranks(2, body)

    def test_an_optimizer_that_has_trained_is_left_without(self):
        def body(rank):
            module = net(rank)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
            optimizer.step(lambda: loss(module, optimizer))
            optimizer.zero_grad(set_to_none=True)
            hvd.broadcast_optimizer_state(optimizer, 0)
            assert all(p.grad is None for p in module.parameters())

        run_ranks(2, body)


def loss(module, optimizer):
    optimizer.zero_grad()
    value = module(torch.ones(4, 4) * torch.arange(4.0).reshape(-1, 1)).square().mean()
    value.backward()
    return value


class ObjectsTest(unittest.TestCase):
    def test_broadcast(self):
        def body(rank):
            obj = {"rank": rank, "x": [1, (2, 3)], "t": torch.ones(2) * rank}
            for root in range(3):
                got = hvd.broadcast_object(obj if rank == root else None, root, name=f"o{root}")
                assert got["rank"] == root and got["t"].tolist() == [root, root]
                assert (got is obj) == (rank == root)
            with self.assertRaises(ValueError):
                hvd.broadcast_object(obj, 3)

        run_ranks(3, body)

    def test_what_cannot_be_pickled_is_refused(self):
        def body(rank):
            with self.assertRaises(Exception):  # noqa: B017 (which, is up to what pickles)
                hvd.broadcast_object(item for item in "abc")

        run_ranks(1, body)
