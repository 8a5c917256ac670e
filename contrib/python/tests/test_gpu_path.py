"""Which path tensors on GPUs take: the choice, and torch's tensors on it, over the stand-ins."""

import contextlib
import copy
import io
import os
import threading
import unittest
from unittest import mock

import standin_gpu
from tests_path import need_torch

torch = need_torch()

from fake import run_ranks  # noqa: E402

import gorun.torch as hvd  # noqa: E402
from gorun import basics, bindings, collectives  # noqa: E402
from gorun.exceptions import HorovodInternalError  # noqa: E402
from gorun.gpu import driver, group, nccl, path, staging  # noqa: E402
from gorun.gpu.path import Choice, Facts  # noqa: E402
from gorun.torch import gpu  # noqa: E402


def setUpModule():
    standin_gpu.libraries()


class ChoiceTest(unittest.TestCase):
    def test_table(self):
        one, other = Facts("a", "GPU-1", nccl="2.27.5"), Facts("a", "GPU-2", nccl="2.27.5")
        there = Facts("b", "GPU-1", nccl="2.27.5")
        part = Facts("a", "MIG-1", True, "2.27.5")
        none = Facts("b", "GPU-3", lacks="no NCCL: libnccl.so.2: cannot open; pip install nvidia-nccl-cu12")
        old = Facts("b", "GPU-3", nccl="2.20.3")
        both = [facts._replace(several=True) for facts in (one, one)]
        parts = [part._replace(several=True, gpu=f"MIG-{i}") for i in range(2)]
        switch = "which NCCL takes only with NCCL_MULTI_RANK_GPU_ENABLE=1"
        shared = f"ranks 0 and 1 on a share a GPU, {switch}"
        mig = f"rank 1 on a has a part of a GPU (MIG), {switch}"
        lacks = f"rank 1 on b: {none.lacks}"
        versions = "rank 0 on a has NCCL 2.27.5, and rank 1 on b 2.20.3"
        sharers = "ranks 0 and 1 on a share a GPU"
        ipc = Choice("ipc", "2 ranks share each GPU, of 1")
        alone = one._replace(alone="cuIpcGetMemHandle: operation not supported (801)")
        refused = f"rank 1 on a cannot share memory of its GPU: {alone.alone}"
        without = one._replace(nccl="", lacks="no NCCL")
        own = Choice("nccl", "NCCL 2.27.5, each rank has a GPU of its own")
        share = Choice("nccl", "NCCL 2.27.5, ranks share GPUs")
        for ranks, auto, wanted in [
            ([one, other], own, own),
            ([one, there], own, own),
            ([one, one], ipc, shared),
            ([one, part], Choice("host", mig), mig),
            ([one, none], Choice("host", lacks), lacks),
            ([one, old], Choice("host", versions), versions),
            (both, ipc, share),
            (parts, Choice("host", mig.replace("rank 1", "rank 0")), own),
            ([part, part], Choice("host", f"{sharers}, and rank 0 on a has a part of a GPU (MIG)"),
             mig.replace("rank 1", "rank 0")),
            ([one, alone], Choice("host", f"{sharers}, and {refused}"), shared),
            ([without, without], ipc, "rank 0 on a: no NCCL"),
            ([one, one, other], Choice("host", "GPUs have different numbers of ranks"), shared),
            ([one], Choice("host", "there is one rank"), Choice("host", "there is one rank")),
        ]:
            with self.subTest(ranks=ranks):
                self.assertEqual(path.choose("auto", ranks), auto)
                self.assertEqual(path.choose("host", ranks), Choice("host", "the job asks for it"))
                if isinstance(wanted, Choice):
                    self.assertEqual(path.choose("nccl", ranks), wanted)
                    continue
                with self.assertRaises(ValueError) as raised:
                    path.choose("nccl", ranks)
                self.assertEqual(
                    str(raised.exception),
                    f"--gpu-path nccl: {wanted}; --gpu-path auto takes the path by the host then",
                )
        two = [one, other, there, there._replace(gpu="GPU-2")]
        for ranks, want in [
            (two, Choice("hierarchical", "NCCL 2.27.5 within each host, of 2")),
            (two[:2], Choice("hierarchical", "NCCL 2.27.5 within each host, of 1")),
            (two[:3], Choice("host", "hosts have different numbers of ranks")),
        ]:
            self.assertEqual(path.choose("hierarchical", ranks), want)
        with self.assertRaisesRegex(ValueError, "^--gpu-path hierarchical: ranks 0 and 1 on a share a GPU"):
            path.choose("hierarchical", [one, one])
        two = [one, one, there, there]
        self.assertEqual(path.choose("ipc", two), Choice("ipc", "2 ranks share each GPU, of 2"))
        for ranks, why in [
            ([one, other], "no ranks share a GPU"), ([one, alone], refused),
            ([Facts("b", lacks="no GPU"), one], "rank 0 on b: no GPU"),
            ([one] * 65, "65 ranks share a GPU, and 64 may"),
        ]:  # fmt: skip
            with self.assertRaises(ValueError) as raised:
                path.choose("ipc", ranks)
            self.assertTrue(str(raised.exception).startswith(f"--gpu-path ipc: {why}; "), raised.exception)
        with self.assertRaisesRegex(ValueError, "^--gpu-path gloo: neither"):
            path.choose("gloo", [one])

    def test_look(self):
        with using_standins():
            uuid = "00000000-0000-0000-0000-000000000003"
            self.assertEqual(path.look("a", 3, "nccl", {}), Facts("a", uuid, nccl="2.27.5"))
            self.assertIn("no GPU", path.look("a", -1, "nccl", {}).lacks)
            self.assertIn("invalid device ordinal", path.look("a", 64, "auto", {}).lacks)
            self.assertTrue(path.look("a", 0, "nccl", {path.SEVERAL: "1"}).several)
            staging.staging.cache_clear()
            self.assertEqual(path.look("a", 0, "auto", {}).alone, "")
            for fault, call in ("noipc", "cuIpcGetMemHandle"), ("noptx", "cuModuleLoadData"):
                staging.staging.cache_clear()
                with standin_gpu.faults(**{fault: ""}):
                    self.assertIn(call, path.look("a", 0, "auto", {}).alone)
            staging.staging.cache_clear()
            with mock.patch.object(nccl, "nccl", side_effect=OSError("libnccl.so.2: cannot open")):
                self.assertIn("pip install nvidia-nccl", path.look("a", 0, "nccl", {}).lacks)
            with mock.patch.object(driver, "driver", side_effect=OSError("libcuda.so.1: cannot open")):
                self.assertIn("CUDA's driver: libcuda.so.1", path.look("a", 0, "nccl", {}).lacks)


    def test_survey(self):
        whole = {"lacks": "", "driver": "12.8", "nccl": "2.27.5", "parts": False, "alone": "",
                 "pairs": 56, "reached": 56}  # fmt: skip
        with using_standins():
            self.assertEqual(path.survey(), whole)
            with standin_gpu.faults(nopeer=""):
                self.assertEqual(path.survey(), {**whole, "reached": 0})
            with mock.patch.object(nccl, "nccl", side_effect=OSError("cannot open")):
                self.assertEqual(path.survey(), {**whole, "nccl": "", "lacks": "no NCCL: cannot open"})
        with mock.patch.object(driver, "driver", side_effect=OSError("cannot open")):
            self.assertEqual(path.survey()["lacks"], "CUDA's driver: cannot open")


@contextlib.contextmanager
def using_standins():
    cuda = mock.patch.object(driver, "driver", standin_gpu.driver)
    with cuda, mock.patch.object(nccl, "nccl", standin_gpu.nccl):
        yield


def run_on_gpus(size, body, wanted="nccl", devices=None):
    """Run body(rank) with tensors of the CPU in the place of a GPU's: the stand-in's memory is the host's."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(using_standins())
        for name, what in {
            "on_gpu": lambda tensor: tensor.dtype is not torch.int16,  # which stand for those in host memory
            "current_stream": lambda tensor: mock.Mock(cuda_stream=0),
            "ordinal_of": lambda tensor: basics.rank() if devices is None else devices[basics.rank()],
            "default_ordinal": lambda: basics.rank(),
        }.items():
            stack.enter_context(mock.patch.object(gpu, name, what))
        stack.enter_context(mock.patch.dict(os.environ, GORUN_GPU_PATH=wanted))
        stack.enter_context(mock.patch.object(bindings, "_device_path", gpu.Path()))
        return run_ranks(size, body)


class TorchTest(unittest.TestCase):
    def setUp(self):
        self.calls = []
        real = group.Group.call

        def note(group, name, *arguments):
            self.calls.append(name)
            real(group, name, *arguments)

        patch = mock.patch.object(group.Group, "call", note)
        patch.start()
        self.addCleanup(patch.stop)

    def test_operations(self):
        def body(rank):
            x = torch.tensor([[1.0, 2], [3, rank]])
            self.assertEqual(hvd.allreduce(x, op=hvd.Sum).tolist(), [[2, 4], [6, 1]])
            self.assertEqual(x.tolist(), [[1, 2], [3, rank]])
            self.assertEqual(hvd.allreduce_(x.t().clone().t(), name="t").tolist(), [[1, 2], [3, 0.5]])
            self.assertEqual(hvd.allreduce(x, op=hvd.Max, name="m").tolist(), [[1, 2], [3, 1]])
            got = hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5, name="s")
            self.assertEqual(got.tolist(), [[2, 4], [6, 1]])
            handle = hvd.allreduce_async_(x, op=hvd.Sum, name="a")
            self.assertIs(hvd.synchronize(handle), x)
            self.assertEqual(x.tolist(), [[2, 4], [6, 1]])
            some = [torch.full((2,), rank + 1.0), torch.full((), 5.0)]
            self.assertEqual([y.tolist() for y in hvd.grouped_allreduce(some, op=hvd.Sum)], [[3, 3], 10])
            hvd.grouped_allreduce_(some)
            self.assertEqual([y.tolist() for y in some], [[1.5, 1.5], 5])
            whole = torch.tensor([rank, 7], dtype=torch.int64)
            self.assertEqual(hvd.broadcast(whole, 1).tolist(), [1, 7])
            hvd.broadcast_(whole, 1, name="b")
            self.assertEqual(whole.tolist(), [1, 7])
            hvd.broadcast_parameters({"w": x, "n": torch.tensor(rank)}, 0)

        run_on_gpus(2, body)
        self.assertEqual(self.calls.count("ncclAllReduce"), 2 * 7)
        self.assertGreaterEqual(self.calls.count("ncclBroadcast"), 2 * 3)

    def test_what_goes_by_the_host(self):
        def body(rank):
            whole = torch.tensor([rank + 1, 4])
            self.assertEqual(hvd.allreduce(whole, op=hvd.BitOr).tolist(), [3, 4])
            self.assertEqual(hvd.allreduce(whole.short(), op=hvd.Sum, name="h").tolist(), [3, 8])
            self.assertEqual(hvd.allgather(whole[: rank + 1]).tolist(), [1, 2, 4])
            self.assertEqual(hvd.allgather(whole[: 2 * rank]).tolist(), [2, 4])
            self.assertEqual(hvd.allgather(torch.empty(2, 0)).shape, (4, 0))
            rows, sizes = hvd.alltoall(torch.arange(3) + rank, splits=[1, 2])
            self.assertEqual((rows.tolist(), sizes.tolist()), ([[0, 1], [1, 2, 2, 3]][rank], [rank + 1] * 2))
            odd = torch.arange(3.0)
            self.assertEqual(hvd.reducescatter(odd, op=hvd.Sum).tolist(), [[0, 2], [4]][rank])
            self.assertEqual(hvd.broadcast_object({"rank": rank}, 1), {"rank": 1})
            self.assertFalse(bindings.on_device([1, 2]), "a tensor of another framework")
            self.assertEqual(hvd.allreduce(torch.empty(0, 3)).shape, (0, 3))
            self.assertEqual(hvd.broadcast(torch.empty(0), 0).shape, (0,))

        with mock.patch.dict("fake.REDUCE", {collectives.BitOr: lambda a, b: a | b}):
            run_on_gpus(2, body)
        self.assertEqual(self.calls, [])

    def test_operations_on_rows(self):
        def body(rank):
            x = torch.tensor([[1.0, 2], [3, rank]], requires_grad=True)
            got = hvd.allgather(x)
            self.assertEqual(got.tolist(), [[1, 2], [3, 0], [1, 2], [3, 1]])
            got.sum().backward()
            self.assertEqual(x.grad.tolist(), [[1, 1], [1, 1]])
            some = [torch.tensor([rank > 0]), torch.full((1, 2), rank, dtype=torch.int64)]
            a, b = hvd.grouped_allgather(some)
            self.assertEqual((a.tolist(), b.tolist()), ([False, True], [[0, 0], [1, 1]]))
            handle = hvd.grouped_allgather_async(some, name="g")
            while not hvd.poll(handle):
                pass
            self.assertEqual(hvd.synchronize(handle)[1].tolist(), [[0, 0], [1, 1]])
            x = torch.arange(4.0) + rank
            self.assertEqual(hvd.reducescatter(x, op=hvd.Sum).tolist(), [[1, 3], [5, 7]][rank])
            a, b = hvd.grouped_reducescatter([x, x.view(2, 2)], prescale_factor=2.0, postscale_factor=2.0)
            self.assertEqual([a.tolist(), b.tolist()], [[[2, 6], [[2, 6]]], [[10, 14], [[10, 14]]]][rank])
            self.assertEqual(hvd.alltoall(x.half()).tolist(), [[0, 1, 1, 2], [2, 3, 3, 4]][rank])
            rows, sizes = hvd.alltoall(torch.arange(3) + rank, splits=[2 - rank, 1 + rank])
            self.assertEqual(rows.tolist(), [[0, 1, 1], [2, 2, 3]][rank])

        run_on_gpus(2, body)
        kinds = {name: self.calls.count(name) for name in ("ncclAllGather", "ncclReduceScatter", "ncclSend")}
        self.assertEqual(kinds, {"ncclAllGather": 2 * 5, "ncclReduceScatter": 2 * 3, "ncclSend": 2 * 4})

    def test_captured_stream(self):
        """Each operation is refused before anything is sent, and works after the capture."""

        def body(rank):
            x = torch.ones(2)
            hvd.allreduce(x, op=hvd.Sum, name="x")
            both.wait()
            if rank == 0:
                make(capturing="")
            both.wait()
            for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall):
                with self.assertRaisesRegex(RuntimeError, "captured into a CUDA graph"):
                    call(x, name="x")
            with self.assertRaisesRegex(RuntimeError, "captured into a CUDA graph"):
                hvd.broadcast(x, 0, name="x")
            both.wait()
            if rank == 0:
                make(capturing=None)
            both.wait()
            self.assertEqual(hvd.allreduce(x, op=hvd.Sum, name="x").tolist(), [2, 2])

        both = threading.Barrier(2)
        with standin_gpu.faults() as make:
            run_on_gpus(2, body)

    def test_ranks_that_differ_in_rows(self):
        """A call that is not the same on all ranks gets the error it gets by the host."""

        def body(rank):
            hvd.allreduce(torch.ones(3), name="first")
            with self.assertRaises(HorovodInternalError):
                hvd.allgather(torch.ones(2, 2 + rank), name="a")
            with self.assertRaises(HorovodInternalError):
                hvd.allgather(torch.ones(2, dtype=torch.int16 if rank else torch.int32), name="b")
            with self.assertRaises(HorovodInternalError):
                hvd.reducescatter(torch.ones(2 + 2 * rank), name="c")
            with self.assertRaises(ValueError):
                hvd.alltoall(torch.ones(3), name="d")

        run_on_gpus(2, body)
        self.assertEqual(set(self.calls), {"ncclAllReduce"})

    def test_auto_takes_the_host_where_ranks_share_a_gpu_and_no_memory(self):
        def body(rank):
            return hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist()

        out = io.StringIO()
        verbose = mock.patch.dict(os.environ, GORUN_VERBOSE="1", HOROVOD_HOSTNAME="h1")
        with verbose, contextlib.redirect_stderr(out):
            with mock.patch.object(staging, "trial", lambda _: "no such thing"):
                self.assertEqual(run_on_gpus(2, body, "auto", [1, 1]), [[2, 2, 2]] * 2)
        self.assertEqual(self.calls, [])
        why = "rank 0 on h1 cannot share memory of its GPU: no such thing"
        self.assertIn(f"go by host: ranks 0 and 1 on h1 share a GPU, and {why}", out.getvalue())


class OptimizerTest(unittest.TestCase):
    def test_left_to_the_host(self):
        """Once a rank has joined, the others go by the host, with the same result."""

        def leave(group, work, sums):
            work.left_to_host()

        def body(rank):
            x = torch.tensor([1.0, rank])
            handles = {}
            for name in ("xy", "yx")[rank]:  # each waits in an order of its own
                y = x if name == "x" else torch.ones(3)
                handles[name] = hvd.allreduce_async_(y, op=hvd.Sum, prescale_factor=2.0, name=name)
            for handle in handles.values():
                while not hvd.poll(handle):
                    pass
                hvd.synchronize(handle)
            return x.tolist(), hvd.broadcast(x + rank, 1).tolist()

        with mock.patch.object(group.Group, "_answered", leave):
            self.assertEqual(run_on_gpus(2, body), [([4, 2], [5, 3])] * 2)
            got = self.train(2, run_on_gpus)
        for a, b in zip(got[0], self.train(2, run_ranks)[0]):
            self.assertTrue(torch.allclose(a, b, atol=1e-6))

    def train(self, size, run, **options):
        torch.manual_seed(1)
        first = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 2))

        def body(rank):
            model = copy.deepcopy(first)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
            for step in range(4):
                optimizer.zero_grad()
                model(torch.full((2, 6), rank + step / 2.0)).square().mean().backward()
                optimizer.step()
            return [p.detach().clone() for p in model.parameters()]

        return run(size, body)

    def test_infinity_of_one_rank(self):
        """All ranks see it, whatever the type of the gradients is: so all of them skip a step of AMP's."""

        def body(rank):
            for dtype, compression in (
                (torch.float32, hvd.Compression.none), (torch.float32, hvd.Compression.fp16),
                (torch.bfloat16, hvd.Compression.none),
            ):  # fmt: skip
                parameter = torch.nn.Parameter(torch.ones(4, dtype=dtype))
                optimizer = torch.optim.SGD([parameter], lr=0.1)
                optimizer = hvd.DistributedOptimizer(optimizer, [("p", parameter)], compression=compression)
                (parameter * torch.tensor([1, float("inf") if rank else 1, 2, 3])).sum().backward()
                optimizer.synchronize()
                self.assertEqual(parameter.grad.dtype, dtype)
                self.assertEqual(parameter.grad.tolist(), [1, float("inf"), 2, 3])

        run_on_gpus(2, body)

    def test_hierarchical_is_the_same_too(self):
        hosts = {"by_host": lambda ranks: [[0, 1], [2, 3]]}
        with mock.patch.multiple(path, **hosts):
            got = self.train(4, lambda size, body: run_on_gpus(size, body, "hierarchical"))
        for mine, want in zip(got, self.train(4, run_ranks)):
            for a, b in zip(mine, want):
                self.assertTrue(torch.allclose(a, b, atol=1e-6))

    def test_same_as_on_the_host(self):
        for options in ({}, {"compression": hvd.Compression.fp16}, {"gradient_predivide_factor": 2.0}):
            with self.subTest(options=options):
                real = group.Group.allreduce
                with mock.patch.object(group.Group, "allreduce", autospec=True, side_effect=real) as on:
                    got = self.train(2, run_on_gpus, **options)
                self.assertGreaterEqual(on.call_count, 2 * 4)
                for mine, want in zip(got, self.train(2, run_ranks, **options)):
                    for a, b in zip(mine, want):
                        self.assertTrue(torch.allclose(a, b, atol=1e-3), (options, a, b))
