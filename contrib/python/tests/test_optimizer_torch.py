"""DistributedOptimizer where a test must see inside: memory, names, failures and interrupts.

mp/test_optimizers.py trains with each optimizer and option in a real job.
"""

import collections
import copy
import csv
import functools
import gc
import os
import tempfile
import time
import unittest
from unittest import mock

from tests_path import need_torch

torch = need_torch()

from fake import run_ranks  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gorun.torch as hvd  # noqa: E402
from gorun import basics, errors  # noqa: E402
from gorun.objects import allgather_object_async  # noqa: E402
from gorun.torch import reducer  # noqa: E402
from gorun.torch.buckets import Loose, Reduction, Slot, fill  # noqa: E402

ROWS = 4  # of a rank's batch


def model(seed=0, width=6):
    """A small network whose weights depend on the seed only: the ranks are threads and share a generator."""
    generator = torch.Generator().manual_seed(seed)
    layers = [nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)]
    net = nn.Sequential(*layers)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.5)
    return net


def batch(step, size):
    """The inputs and targets of all ranks."""
    generator = torch.Generator().manual_seed(100 + step)
    rows = ROWS * size
    return torch.randn(rows, 5, generator=generator), torch.randn(rows, 2, generator=generator)


def share(data, rank):
    return data[rank * ROWS : (rank + 1) * ROWS]


def left(session):
    """What is in use when all garbage is gone: a collection does nothing while another thread has one."""
    since = time.monotonic()
    while any(session.in_use()) and time.monotonic() - since < 10:
        gc.collect()
        time.sleep(0.01)
    return session.in_use()


def fails(_):
    raise ZeroDivisionError


def distributed_sgd(net, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), **options), net.named_parameters())


OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01),
}


def lbfgs(parameters):
    return torch.optim.LBFGS(parameters, max_iter=4, line_search_fn="strong_wolfe")


def single(make, size, steps, **kwargs):
    """The weights after training alone with the data of all ranks."""
    net = model(**kwargs)
    optimizer = make(net.parameters())
    for step in range(steps):
        x, y = batch(step, size)
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
    return [p.detach() for p in net.parameters()]


def close(parameters, want, tolerance=1e-5):
    for p, w in zip(parameters, want):
        assert torch.allclose(p.detach(), w, rtol=tolerance, atol=tolerance), (p - w).abs().max()


class EquivalenceTest(unittest.TestCase):
    def test_options(self):
        """Each row trains two ranks in another way that must come to the same weights."""
        make = OPTIMIZERS["sgd"]
        want = single(make, 2, 5)
        none, zero = {"set_to_none": True}, {"set_to_none": False}
        rows = {
            "no names": ({"named_parameters": None}, none, 1e-5),
            "own compressor": ({"compression": Negating}, zero, 1e-5),
            "own compressor, grads to none": ({"compression": Negating}, none, 1e-5),
        }
        for what, (options, zeroing, tolerance) in rows.items():
            with self.subTest(what):

                def body(rank, options=options, zeroing=zeroing, tolerance=tolerance):
                    net = model()
                    options = {"named_parameters": net.named_parameters(), **options}
                    optimizer = hvd.DistributedOptimizer(make(net.parameters()), **options)
                    for step in range(5):
                        x, y = batch(step, 2)
                        optimizer.zero_grad(**zeroing)
                        F.mse_loss(net(share(x, rank)), share(y, rank)).backward()
                        optimizer.step()
                    close(net.parameters(), want, tolerance)

                run_ranks(2, body)

    def test_channels_last_and_odd_strides(self):
        def body(rank):
            generator = torch.Generator().manual_seed(1)
            net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            with torch.no_grad():
                for p in net.parameters():
                    p.copy_(torch.randn(p.shape, generator=generator))
            twin = copy.deepcopy(net)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
            plain = torch.optim.SGD(twin.parameters(), lr=0.1)
            for _ in range(3):
                x = torch.randn(2, 3, 8, 8, generator=generator).contiguous(memory_format=torch.channels_last)
                for module, opt in ((net, optimizer), (twin, plain)):
                    opt.zero_grad()
                    module(x).square().mean().backward()
                    opt.step()
            close(net.parameters(), [p.detach() for p in twin.parameters()])

        run_ranks(2, body)


class Negating(hvd.Compression.none):
    """A compressor of the user's own."""

    @staticmethod
    def compress(tensor):
        return -tensor, "ctx"

    @staticmethod
    def decompress(tensor, ctx):
        assert ctx == "ctx"
        return -tensor


def scaler_looks(optimizer):
    """Do what a GradScaler does with an optimizer: look at its parameters, from a module of that name."""
    scope = {"__name__": "torch.cuda.amp.grad_scaler"}
    exec("def look(optimizer):\n    return optimizer.param_groups", scope)
    return scope["look"](optimizer)


class StepTest(unittest.TestCase):
    def test_step_that_a_scaler_skipped(self):
        """Gradients after it are reduced too, although the script zeroes them by the model."""

        def body(rank):
            net = nn.Linear(1, 1, bias=False)
            optimizer = distributed_sgd(net, lr=0.1)
            for step in range(6):
                net.zero_grad()
                net(torch.full((1, 1), float(step + rank))).sum().backward()
                scaler_looks(optimizer)
                assert net.weight.grad.item() == step + 0.5, (step, net.weight.grad)
                if step % 2:
                    optimizer.step()
                    assert net.weight.grad.item() == step + 0.5, (step, net.weight.grad)

        run_ranks(2, body)

    def test_synchronize_that_a_script_replaced(self):
        def body(rank):
            net = nn.Linear(1, 1, bias=False)
            optimizer = distributed_sgd(net, lr=0.1)
            calls = []
            synchronize = optimizer.synchronize
            optimizer.synchronize = lambda: (calls.append(1), synchronize())
            for step in range(3):
                optimizer.zero_grad()
                net(torch.full((1, 1), float(step + rank))).sum().backward()
                optimizer.step()
                assert net.weight.grad.item() == step + 0.5, (step, net.weight.grad)
            assert len(calls) == 3, calls

        run_ranks(2, body)

    def test_gradients_are_views_and_travel_during_backward(self):
        def body(rank):
            net = model()
            optimizer = distributed_sgd(net, lr=0.1)
            engine = basics.world().session.engine
            places = None
            for step in range(3):
                optimizer.zero_grad(set_to_none=step == 1)
                x, y = batch(step, 2)
                F.mse_loss(net(share(x, rank)), share(y, rank)).backward()
                sent = [name for r, name in engine.log if r == rank and "allreduce" in name]
                assert len(sent) == (step + 1 if step else 0), "nothing was submitted during backward()"
                optimizer.step()
                now = [p.grad.data_ptr() for p in net.parameters()]
                assert places in (None, now), "gradients moved"
                places = now

        run_ranks(2, body)

    def test_autotune_log(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tuned.csv")
            environ = {
                "HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": path, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
                "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2", "HOROVOD_FUSION_THRESHOLD": "4096",
            }  # fmt: skip

            def body(rank):
                net = model()
                optimizer = distributed_sgd(net, lr=0.1)
                for _ in range(10):
                    net(torch.ones(1, 5)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()

            with mock.patch.dict(os.environ, environ):
                run_ranks(2, body)
            with open(path) as file:
                rows = list(csv.DictReader(file))
            assert len(rows) in (3, 4), rows  # the first step only looks at the gradients
            for row in rows:
                assert row["tensor_fusion_threshold"] == "4096" and float(row["score"]) > 0, row
                assert row["hierarchical_allreduce"] == row["torus_allreduce"] == "0", row

    def test_closure_and_lbfgs(self):
        def body(rank):
            for make in (OPTIMIZERS["sgd"], lbfgs):
                net, twin = model(), model()
                optimizer = hvd.DistributedOptimizer(make(net.parameters()), net.named_parameters())
                plain = make(twin.parameters())
                for step in range(3):
                    x, y = batch(step, 2)

                    def evaluate(module, opt, x, y):
                        opt.zero_grad()
                        loss = F.mse_loss(module(x), y)
                        loss.backward()
                        return loss

                    mine = net, optimizer, share(x, rank), share(y, rank)
                    optimizer.step(functools.partial(evaluate, *mine))
                    plain.step(functools.partial(evaluate, twin, plain, x, y))
                close(net.parameters(), [p.detach() for p in twin.parameters()], 1e-3)

        run_ranks(2, body)

    def test_interrupted_wait_for_a_gradient_that_travels_alone(self):
        parameter = nn.Parameter(torch.zeros(2))
        parameter.grad = torch.ones(2)
        loose = Loose("x", Slot("w", parameter), True, Reduction())
        results = iter([KeyboardInterrupt, torch.full((2,), 3.0)])

        def result():
            outcome = next(results)
            if outcome is KeyboardInterrupt:
                raise outcome
            return outcome

        loose._result = result
        with self.assertRaises(KeyboardInterrupt):
            loose.finish()
        self.assertEqual(parameter.grad.tolist(), [1, 1])
        loose.finish()
        self.assertEqual(parameter.grad.tolist(), [3, 3])
        loose.finish()  # nothing is under way any more
        self.assertEqual(next(results, "none"), "none")
        loose._result = lambda: None  # as synchronize() says, asked again, of what was taken when Ctrl-C came
        with self.assertRaisesRegex(hvd.HorovodInternalError, "interrupted when it had ended"):
            loose.finish()
        self.assertEqual(parameter.grad.tolist(), [3, 3])

    def test_interrupted_agreement(self):
        agreement = reducer.Agreement([], "gradients.0", ("allgather_object", "gradients.0"))
        with mock.patch.object(reducer, "allgather_object_async", side_effect=KeyboardInterrupt) as submit:
            with self.assertRaises(KeyboardInterrupt):
                agreement.begin(hvd.global_process_set)
            agreement.begin(hvd.global_process_set)  # not again: the others may have it already
        self.assertEqual(submit.call_count, 1)
        with self.assertRaisesRegex(hvd.HorovodInternalError, "interrupted while it was submitted"):
            agreement.end(hvd.global_process_set)

        def body(rank):
            gathered = allgather_object_async(rank)
            self.assertEqual(gathered(), [0, 1])
            # As synchronize() says, asked again, of what was taken when Ctrl-C came.
            with self.assertRaisesRegex(hvd.HorovodInternalError, "object: interrupted when it had ended"):
                gathered()

        run_ranks(2, body)

    def test_a_step_cut_short_between_the_gradients_and_the_optimizer(self):
        class Struck(torch.optim.SGD):
            struck = False

            def step(self, closure=None):
                if self.struck:
                    raise KeyboardInterrupt
                return super().step(closure)

        def body(rank):
            weight = nn.Parameter(torch.zeros(2))
            optimizer = hvd.DistributedOptimizer(Struck([weight], lr=1.0), op=hvd.Sum)
            for step in range(3):
                optimizer.zero_grad()
                (weight * (step + 1)).sum().backward()
                if rank == 0 and step != 1:
                    optimizer.struck = True
                    with self.assertRaises(KeyboardInterrupt):
                        optimizer.step()
                    optimizer.struck = False
                    self.assertEqual(weight.grad.tolist(), [2 * (step + 1)] * 2)
                    if step == 2:
                        continue  # that batch is dropped, and its gradients are not those of the next one
                optimizer.step()
                self.assertEqual(weight.grad.tolist(), [2 * (step + 1)] * 2)
            optimizer.zero_grad()
            optimizer.step()  # no gradient here, and all ranks take part
            self.assertEqual(weight.grad.tolist(), [0, 0])

        run_ranks(2, body)

    def test_what_an_optimizer_does_not_need_is_given_back(self):
        def body(rank):
            session = basics.world().session
            table = nn.Embedding(8, 3)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1))
            for _ in range(2):
                optimizer.zero_grad(set_to_none=True)
                table(torch.tensor([rank])).sum().backward()
                optimizer.step()
            self.assertEqual(session.in_use(), (0, 1))
            optimizer.zero_grad(set_to_none=True)
            del optimizer
            self.assertEqual(left(session), (0, 0))
            self.assertFalse(getattr(table.weight, "_post_accumulate_grad_hooks", None))
            table(torch.tensor([rank])).sum().backward()

        run_ranks(2, body)

    def test_sparse_gradients_that_no_rank_had_at_first(self):
        """They travel as dense ones, and are sparse again, which some optimizers insist on."""

        class Packed(hvd.Compression.none):
            pass

        for compression in hvd.Compression.none, hvd.Compression.fp16, Packed:

            def body(rank, compression=compression):
                table = nn.Embedding(8, 3, sparse=True)
                optimizer = hvd.DistributedOptimizer(
                    torch.optim.SparseAdam(list(table.parameters())), compression=compression
                )
                optimizer.synchronize()
                optimizer.zero_grad(set_to_none=True)
                for step in range(2):
                    table(torch.tensor([rank, step + 3])).sum().backward()
                    optimizer.step()
                    used = table.weight.grad.coalesce()
                    assert used.indices().tolist() == [[0, 1, step + 3]]
                    assert used.values()[:, 0].tolist() == [0.5, 0.5, 1]
                    optimizer.zero_grad()

            run_ranks(2, body)

    def test_parameters_that_come_later(self):
        def body(rank):
            net = model()
            head, frozen = nn.Linear(2, 2), next(net.parameters())
            hvd.broadcast_parameters(head.state_dict(), 0)
            frozen.requires_grad_(False)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
            for step in range(5):
                if step == 2:
                    frozen.requires_grad_(True)
                if step == 3:
                    optimizer.add_param_group({"params": list(head.parameters())})
                optimizer.zero_grad()
                head(net(torch.ones(3, 5) * (rank + 1 + step))).square().sum().backward()
                optimizer.step()
            return [p.detach().clone() for p in [*net.parameters(), *head.parameters()]]

        a, b = run_ranks(2, body)
        assert all(torch.equal(x, y) for x, y in zip(a, b))

    def test_a_model_frozen_later_keeps_what_is_frozen(self):
        def body(rank):
            net = model()
            frozen = next(net.parameters())
            optimizer = distributed_sgd(net, lr=0.1, weight_decay=0.5)
            for step in range(3):
                if step == 1:
                    frozen.requires_grad_(False)
                    before = frozen.clone()
                optimizer.zero_grad(set_to_none=True)
                net(torch.ones(3, 5)).sum().backward()
                optimizer.step()
            assert torch.equal(frozen, before)

        run_ranks(2, body)

    def test_after_a_restart_of_the_world(self):
        """As in an elastic job: the optimizer outlives the world, its memory too."""
        state = {}

        def first(rank):
            net = model()
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["adam"](net.parameters()), net.named_parameters())
            for step in range(2):
                optimizer.zero_grad()
                x, y = batch(step, 2)
                F.mse_loss(net(share(x, rank)), share(y, rank)).backward()
                optimizer.step()
            state[rank] = net, optimizer

        def second(rank):
            net, optimizer = state[rank]
            for step in range(2, 4):
                optimizer.zero_grad()
                x, y = batch(step, 2)
                F.mse_loss(net(share(x, rank)), share(y, rank)).backward()
                optimizer.step()
            close(net.parameters(), single(OPTIMIZERS["adam"], 2, 4))

        run_ranks(2, first)
        run_ranks(2, second)

    def test_failure_is_raised_by_step_and_leaves_nothing_under_way(self):
        def body(rank):
            net = model(width=6 if rank else 7)  # ranks disagree about the model
            optimizer = distributed_sgd(net, lr=0.1)
            for _ in range(2):
                net(torch.ones(1, 5)).sum().backward()
                with self.assertRaises(hvd.HorovodInternalError):
                    optimizer.step()
                optimizer.zero_grad()

        run_ranks(2, body)

    def test_failure_of_a_hook_is_raised_where_backward_ends(self):
        def body(rank):
            net = model()
            optimizer = distributed_sgd(net, lr=0.1)
            x, seen = torch.ones(1, 5), collections.Counter()
            for name, p in net.named_parameters():
                p.register_hook(lambda _, name=name: seen.update([name]))
            for _ in range(2):
                net(x).sum().backward()
                for _ in range(2):
                    with self.assertRaisesRegex(AssertionError, "more than backward_passes_per_step"):
                        net(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            # To the end, although the hook of the last layer, which comes first, has failed.
            self.assertEqual(seen, {name: 6 for name, _ in net.named_parameters()})

        run_ranks(2, body)

    def test_what_backward_could_not_submit_is_not_left_out_in_silence(self):
        """Although the script goes on after the failure."""

        def body(rank):
            net = model()
            optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"](net.parameters()), net.named_parameters())
            session = basics.world().session
            refused = 0

            def refuse(name):
                nonlocal refused
                if refused and name.startswith("allreduce.gradients"):
                    refused -= 1
                    raise errors.InvalidArgument("too many operations are in flight")

            def backward(number):
                x, y = batch(number, 2)
                F.mse_loss(net(share(x, rank)), share(y, rank)).backward()

            session.before = refuse
            backward(0)
            optimizer.step()
            optimizer.zero_grad()
            refused = 1
            with self.assertRaisesRegex(errors.InvalidArgument, "too many"):
                backward(1)
            optimizer.step()  # submits it again
            optimizer.zero_grad()
            close(net.parameters(), single(OPTIMIZERS["sgd"], 2, 2))
            refused = 2
            with self.assertRaisesRegex(errors.InvalidArgument, "too many"):
                backward(2)
            with self.assertRaisesRegex(errors.InvalidArgument, "too many"):
                optimizer.step()
            optimizer.zero_grad()
            refused = 1
            hook = next(net.parameters()).register_hook(fails)
            with self.assertRaises(ZeroDivisionError):  # in the middle: what had failed before is not raised
                backward(2)
            hook.remove()
            with self.assertRaisesRegex(errors.InvalidArgument, "too many"):
                optimizer.step()
            optimizer.zero_grad()
            close(net.parameters(), single(OPTIMIZERS["sgd"], 2, 2))
            backward(2)
            optimizer.step()
            close(net.parameters(), single(OPTIMIZERS["sgd"], 2, 3))

        run_ranks(2, body)

    def test_dropped_optimizers_give_their_memory_and_parameters_back(self):
        def body(rank):
            net = model()
            session = basics.world().session
            for _ in range(12):
                optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
                for _ in range(2):
                    optimizer.zero_grad(set_to_none=True)
                    net(torch.ones(1, 5)).sum().backward()
                    optimizer.step()
                del optimizer
                # One block more than the gradients' may wait for an operation to end.
                assert session.in_use()[1] <= 2, f"the memory grows: {session.in_use()}"

        gc.disable()  # scripts may do so for their speed
        try:
            run_ranks(2, body)
        finally:
            gc.enable()


class ConstructionTest(unittest.TestCase):
    def test_is_an_optimizer_of_the_same_class_with_the_same_state(self):
        net = model()
        plain = torch.optim.Adam(net.parameters(), lr=0.25)
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
        optimizer = hvd.DistributedOptimizer(plain, net.named_parameters(), backward_passes_per_step=3)
        self.assertIsInstance(optimizer, torch.optim.Adam)
        self.assertEqual(type(optimizer).__name__, "Adam")
        self.assertEqual(optimizer.backward_passes_per_step, 3)
        optimizer.set_backward_passes_per_step(1)

        def body(rank):
            optimizer.zero_grad()
            net(torch.ones(1, 5)).sum().backward()
            optimizer.step()
            scheduler.step()
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.125)
            after = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            optimizer.step()
            after.step()
            copy.deepcopy(optimizer).step()
            optimizer.load_state_dict(optimizer.state_dict())
            self.assertEqual(len(optimizer.state), len(list(net.parameters())))

        run_ranks(1, body)

    def test_bad_arguments(self):
        net = model()
        plain = torch.optim.SGD(net.parameters(), lr=0.1)
        named = list(net.named_parameters())
        for kwargs in (
            {"named_parameters": list(net.parameters())},
            {"groups": -1},
            {"groups": "ab"},
            {"groups": [[named[0][1]], [named[0][1]]]},
            {"backward_passes_per_step": 0},
        ):
            with self.subTest(kwargs), self.assertRaises(ValueError):
                hvd.DistributedOptimizer(plain, **kwargs)
        with self.assertRaises(ValueError):
            hvd.DistributedOptimizer(hvd.DistributedOptimizer(plain))

    def test_fill(self):
        rows = {
            "first small, then large": ([("a", 4)] * 7, 12, 4, [[0], [1, 2, 3], [4, 5, 6]]),
            "kinds apart": ([("a", 4), ("b", 4), ("a", 4), ("b", 4)], 100, 100, [[0, 2], [1, 3]]),
            "no fusion": ([("a", 4)] * 3, 0, 1 << 20, [[0], [1], [2]]),
            "larger than a bucket": ([("a", 400), ("a", 1), ("a", 1)], 10, 10, [[0], [1, 2]]),
            "nothing": ([], 10, 10, []),
        }
        for what, (sizes, capacity, first, want) in rows.items():
            with self.subTest(what):
                self.assertEqual(fill(sizes, capacity, first), want)
