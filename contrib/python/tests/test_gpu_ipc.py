"""Whole jobs whose ranks share GPUs and reduce their memory by CUDA's shared memory, over the stand-ins."""

import re
import sys
import unittest
from pathlib import Path

from standin_gpu import run_job
from tests_path import need, need_torch

need("numpy")

HERE = Path(__file__).resolve().parent
ONE_HOST, TWO_HOSTS = "localhost:{}", "localhost:2,127.0.0.1:2"


class Test(unittest.TestCase):
    def run_ranks(self, what, hosts, *flags, gpus=1, **made):
        """Run a function of gpu_ipc.py on all ranks; return how it ended."""
        program = [sys.executable, "-B", HERE / "gpu_ipc.py", what, str(gpus)]
        return run_job("-v", "--gpu-path", "ipc", "-H", hosts, *flags, *program, **made)

    def fine(self, ended):
        said = ended.stdout + ended.stderr
        self.assertEqual(ended.returncode, 0, said)
        return said

    def test_reductions(self):
        for hosts, gpus, ranks, said in [
            (ONE_HOST.format(3), 1, 3, "3 ranks share each GPU, of 1"),
            (ONE_HOST.format(4), 2, 4, "2 ranks share each GPU, of 2"),
            (TWO_HOSTS, 1, 4, "2 ranks share each GPU, of 2"),
        ]:
            with self.subTest(hosts=hosts, gpus=gpus):
                out = self.fine(self.run_ranks("reductions", hosts, gpus=gpus))
                self.assertIn(f"tensors on GPUs go by ipc: {said}", out)
                self.assertEqual(len(re.findall(r"rank \d: all equal", out)), ranks, out)

    def test_a_rank_that_cannot(self):
        said = self.fine(self.run_ranks("faults", ONE_HOST.format(3)))
        ways = re.findall(r"rank \d: by ipc (.*)", said)
        self.assertEqual(ways, ["[False, True, False, False, False]"] * 3, said)
        for why in ("out of memory", "a PTX JIT compilation failed", "cuIpcOpenMemHandle_v2: operation not"):
            line = f"rank 1: tensors on GPUs go by host, not by ipc: .*{why}"
            self.assertEqual(len(re.findall(line, said)), 1, said)

    def test_losses(self):
        """A rank dies between two steps: the others learn of it at once, and go on in the next world."""
        flags = "--min-np", "2", "--on-failure", "shrink"
        said = self.fine(self.run_ranks("losses", ONE_HOST.format(5), *flags))
        for point, left in ("pieces", 4), ("reduced", 3), ("done", 2):
            seconds = [float(each) for each in re.findall(rf"lost at {point}: (.*) s", said)]
            self.assertEqual(len(seconds), left, said)
            self.assertLess(max(seconds), 5)  # tenths of it, on a machine that is not busy
        self.assertEqual(len(re.findall(r"done: rank \d of 2, in use 0", said)), 2, said)

    def test_while_another_thread_captures(self):
        said = self.fine(self.run_ranks("elsewhere", ONE_HOST.format(2)))
        self.assertEqual(len(re.findall(r"rank \d: fine", said)), 2, said)

    def test_a_rank_leaves_while_the_stream_is_busy(self):
        said = self.fine(self.run_ranks("held", ONE_HOST.format(2)))
        self.assertEqual(said.count("after the stream: x on the GPU: it did not end when"), 2, said)

    def test_memory_that_is_not_shared(self):
        why = "rank 0 on localhost cannot share memory of its GPU: cuIpcGetMemHandle: operation not supported"
        ended = self.run_ranks("reductions", ONE_HOST.format(2), noipc="")
        self.assertIn(f"ValueError: --gpu-path ipc: {why}", ended.stderr)
        ended = self.run_ranks("reductions", ONE_HOST.format(2), "--gpu-path", "auto", noipc="")
        self.assertIn(f"go by host: ranks 0 and 1 on localhost share a GPU, and {why}", ended.stderr)

    def test_torch(self):
        """horovod.torch and its optimizer; what is no allreduce goes by the host."""
        need_torch()
        program = ["-B", HERE / "gpu_for_cpu.py", HERE / "gpu_ipc_torch.py"]
        flags = "-np", "2", "--gpu-path", "auto", "-x", "GPU_STANDIN_SHARED=1"
        ended = run_job(*flags, sys.executable, *program)
        self.assertEqual(len(re.findall(r"rank \d: by ipc [1-9]", self.fine(ended))), 2)

    def test_elastic_optimizer(self):
        """A rank dies in backward: the others train on, with the same model, by NCCL as by shared memory."""
        need_torch()
        program = [sys.executable, "-B", HERE / "gpu_for_cpu.py", HERE / "gpu_elastic.py"]
        flags = "--min-np", "2", "--on-failure", "shrink", "-H", "localhost:3", "-v"
        for way, more in ("nccl", []), ("ipc", ["-x", "GPU_STANDIN_SHARED=1"]):
            with self.subTest(way=way):
                said = self.fine(run_job(*flags, "--gpu-path", way, *more, *program))
                self.assertEqual(len(re.findall(r"rank [01]: trained", said)), 2, said)
                self.assertEqual(said.count(f"tensors on GPUs go by {way}: "), 2, said)
