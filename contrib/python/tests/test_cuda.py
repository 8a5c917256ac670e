"""Gradients of a GPU: what is asked of CUDA, in which order; and, where there is a GPU, what comes out."""

import contextlib
import copy
import mmap
import threading
import unittest
from unittest import mock

from tests_path import need_torch

torch = need_torch()

from fake import run_ranks  # noqa: E402

import gorun.torch as hvd  # noqa: E402
from gorun import basics  # noqa: E402
from gorun.session import Region  # noqa: E402
from gorun.torch import cuda  # noqa: E402


class FakeCuda:
    """Streams, events and the runtime, which note what they are asked for."""

    def __init__(self, refuse=0):
        self.log = []
        self.refuse = refuse
        self.registered = {}
        self.local = threading.local()  # every thread has a current stream

    def Stream(self, device):  # noqa: N802
        return FakeStream(self, "copies")

    def Event(self):  # noqa: N802
        return FakeEvent(self)

    def current_stream(self, device):
        return FakeStream(self, getattr(self.local, "current", "caller"))

    @contextlib.contextmanager
    def stream(self, stream):
        before = self.current_stream(None).name
        self.local.current = stream.name
        self.log.append(f"on {stream.name}")
        try:
            yield
        finally:
            self.local.current = before

    def cudart(self):
        return self

    def cudaHostRegister(self, address, size, flags):  # noqa: N802
        assert address % mmap.PAGESIZE == 0 and flags == 0
        if self.refuse:
            return self.refuse
        assert address not in self.registered, "registered twice"
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address):  # noqa: N802
        del self.registered[address]
        self.log.append("unregistered")
        return 0


class FakeStream:
    def __init__(self, cuda, name):
        self.cuda, self.name = cuda, name

    def synchronize(self):
        self.cuda.log.append(f"{self.name} are done")

    def wait_stream(self, other):
        self.cuda.log.append(f"{self.name} after {other.name}")


class FakeEvent:
    def __init__(self, cuda):
        self.cuda = cuda

    def record(self, stream):
        self.cuda.log.append(f"event on {stream.name}")

    def synchronize(self):
        self.cuda.log.append("wait")


CPU = torch.device("cpu")


class PinTest(unittest.TestCase):
    def region(self):
        return Region(1 << 21, 1 << 21)

    def test_once_until_unmapped(self):
        driver = FakeCuda()
        copies, region = cuda.Copies(CPU, driver), self.region()
        copies.pin(region)
        copies.pin(region)
        self.assertEqual(list(driver.registered.values()), [1 << 21])
        region.release()
        self.assertEqual(driver.registered, {})

    def test_refused(self):
        driver = FakeCuda(refuse=801)  # cudaErrorNotSupported
        copies, region = cuda.Copies(CPU, driver), self.region()
        copies.pin(region)
        driver.refuse = 0
        copies.pin(region)
        self.assertEqual(driver.registered, {}, "asked again")
        region.release()


class OrderTest(unittest.TestCase):
    """An optimizer on the CPU whose gradients take the way of a GPU's."""

    def train(self, size, driver):
        torch.manual_seed(1)
        first = torch.nn.Linear(3, 2)

        def body(rank):
            model = copy.deepcopy(first)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
            for step in range(3):
                optimizer.zero_grad()
                model(torch.full((1, 3), rank + step + 1.0)).sum().backward()
                optimizer.step()
            return [p.detach().clone() for p in model.parameters()]

        with mock.patch.object(cuda, "copies", lambda device: cuda.Copies(device, driver)):
            return run_ranks(size, body)

    def test_same_as_without(self):
        for refuse in (0, 801):
            driver = FakeCuda(refuse)
            got = self.train(2, driver)
            self.assertEqual(driver.registered, {}, "left registered")
            torch.manual_seed(1)
            want = torch.nn.Linear(3, 2)
            optimizer = torch.optim.SGD(want.parameters(), lr=0.1)
            for step in range(3):
                optimizer.zero_grad()
                (sum(want(torch.full((1, 3), rank + step + 1.0)).sum() for rank in range(2)) / 2).backward()
                optimizer.step()
            for parameters in got:
                for a, b in zip(parameters, want.parameters()):
                    self.assertTrue(torch.allclose(a, b, atol=1e-6), (refuse, a, b))

    def test_one_wait_a_bucket(self):
        driver = FakeCuda()
        self.train(2, driver)
        # Two ranks, three steps, one bucket of two gradients: out, one wait, and back without one.
        driver.log = [what for what in driver.log if what != "unregistered"]
        count = {what: driver.log.count(what) for what in set(driver.log)}
        settled = count.pop("copies are done")  # when memory is given back
        self.assertGreaterEqual(settled, 2)
        self.assertEqual(
            count,
            {"copies after caller": 6 * 3, "on copies": 6 * 3, "event on copies": 6, "wait": 6,
             "caller after copies": 6},
        )  # fmt: skip

    def test_order(self):
        driver = FakeCuda()
        copies = cuda.Copies(CPU, driver)
        target = torch.zeros(2)
        copies.out(torch.ones(2), target)
        copies.wait()
        self.assertEqual(target.tolist(), [1, 1])
        with copies.queue():
            pass
        copies.follow()
        out = ["copies after caller", "on copies"]
        self.assertEqual(driver.log, [*out, "event on copies", "wait", *out, "caller after copies"])

    def test_memory_is_given_back_after_the_copies(self):
        driver = FakeCuda()
        region = Region(1 << 21, 1 << 21)
        cuda.Copies(CPU, driver).pin(region)
        other = cuda.Copies(CPU, driver)
        region.release()
        self.assertEqual(driver.log[-1:], ["unregistered"])
        self.assertIn("copies are done", driver.log)
        del other


@unittest.skipUnless(torch.cuda.is_available(), "no GPU that torch can use")
class DeviceTest(unittest.TestCase):
    def test_trains_as_on_the_host(self):
        first = torch.nn.Sequential(torch.nn.Linear(30, 50), torch.nn.Linear(50, 3))

        def body(rank):
            results = []
            for device in ("cpu", "cuda"):
                model = copy.deepcopy(first).to(device)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
                optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
                for step in range(4):
                    optimizer.zero_grad()
                    model(torch.full((5, 30), rank + step / 4, device=device)).square().mean().backward()
                    optimizer.step()
                results.append([p.detach().cpu() for p in model.parameters()])
            for a, b in zip(*results):
                assert torch.allclose(a, b, atol=1e-4)
            assert basics.size() == 2

        run_ranks(2, body)
