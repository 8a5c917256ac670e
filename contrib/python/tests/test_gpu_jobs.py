"""Whole jobs whose ranks reduce memory of GPUs by NCCL, over the stand-ins."""

import re
import sys
import unittest
from pathlib import Path

from standin_gpu import run_job
from tests_path import need_torch


def need_torch2():
    if int(need_torch().__version__.split(".")[0]) < 2:
        raise unittest.SkipTest("a part of make torch2")


class JobTest(unittest.TestCase):
    def losing(self, way, hosts, size, first):
        """Run a job in which ranks die while NCCL hangs: the others abort it, and train on."""
        program = Path(__file__).with_name("gpu_steps.py")
        ended = run_job(
            "--min-np", "2", "--on-failure", "shrink", "-v", "--gpu-path", way, "-H", hosts,
            sys.executable, "-B", program, str(size), str(first),
        )  # fmt: skip
        said = ended.stdout + ended.stderr
        self.assertEqual(ended.returncode, 0, said)
        done = re.findall(r"done: rank (\d) steps 12 sizes \[([\d, ]+)\]", ended.stdout)
        sizes = ", ".join([str(size)] * 5 + ["2"] * 7)
        self.assertEqual(sorted(done), [("0", sizes), ("1", sizes)], said)
        return re.findall(rf"(?m)^\[\d\].*GPUs go by {way}: NCCL 2.27.5(.*)", ended.stderr)

    def test_a_rank_dies_while_nccl_hangs(self):
        self.assertEqual(len(self.losing("nccl", "localhost:3", 3, 2)), 2)

    def test_a_host_dies_while_nccl_hangs(self):
        said = self.losing("hierarchical", "localhost:2,127.0.0.1:2", 4, 2)
        self.assertEqual(said, [" within each host, of 2"] * 2 + [" within each host, of 1"])

    def test_a_rank_joins(self):
        program = Path(__file__).with_name("gpu_joins.py")
        ended = run_job("-np", "3", "--gpu-path", "nccl", sys.executable, "-B", program)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(len(re.findall("joined last: [01]", ended.stdout)), 3, ended.stdout)

    def calls(self, program, *flags):
        """Run a program of torch on two ranks, whose tensors stand for a GPU's; return what NCCL did."""
        need_torch()
        runner = Path(__file__).with_name("gpu_for_cpu.py")
        command = sys.executable, "-B", runner, runner.parent / program
        ended = run_job("-np", "2", "--gpu-path", "nccl", *flags, *command)
        said = ended.stdout + ended.stderr
        self.assertEqual(ended.returncode, 0, said)
        self.assertEqual(len(re.findall("(rank [01] of 2: )?ok(?m:$)", ended.stdout)), 2, said)
        calls = re.findall("NCCL: (.*)", ended.stdout)
        self.assertEqual(len(calls), 2, said)
        return calls

    def check(self, calls, *names):
        for each in calls:
            for name in names:
                self.assertIn(f"nccl{name}=", each)

    def test_torch_distributed(self):
        names = "AllGather", "AllReduce", "Broadcast", "ReduceScatter", "Send", "Recv"
        self.check(self.calls("gpu_distributed.py"), *names)

    def test_fsdp(self):
        need_torch2()
        self.check(self.calls("torch2/test_fsdp.py"), "AllGather", "ReduceScatter")

    def test_compile(self):
        need_torch2()
        self.check(self.calls("torch2/test_compile.py"), "AllReduce", "Broadcast")

    def test_compile_distributed(self):
        need_torch2()
        self.check(self.calls("torch2/test_compile_distributed.py"), "AllReduce")

    def test_grad_scaler(self):
        need_torch2()
        self.check(self.calls("gpu_amp.py"), "AllReduce")

    def test_wanted_but_not_there(self):
        program = "from gorun import basics; from gorun.gpu import route; basics.init(); " \
            "route.route(basics.world(), -1).settle()"  # fmt: skip
        ended = run_job("-np", "2", "--gpu-path", "nccl", sys.executable, "-c", program)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("ValueError: --gpu-path nccl: rank 0 on localhost: no GPU", ended.stderr)
