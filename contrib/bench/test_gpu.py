"""Tests of gpu.py: its table, and a whole run over the stand-ins for CUDA and NCCL."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import gpu

ROOT = Path(__file__).resolve().parents[2]
STANDINS = ROOT / "contrib" / "python" / "tests"


class Alone(gpu.Ranks):
    """Two ranks of which this is one, in memory of the host."""

    size = 2

    def __init__(self) -> None:
        self.sums = 0

    def memory(self, count: int) -> gpu.Memory:
        return gpu.Standin(count)

    def sum(self, memory: gpu.Standin) -> None:
        self.sums += 1
        memory.fill(2.0)


class Test(unittest.TestCase):
    def test_median(self) -> None:
        ticks = iter([0.0, 5.0, 10.0, 11.0, 20.0, 22.0])
        ranks = Alone()
        self.assertEqual(gpu.measure(ranks, 1 << 30, 0.1, lambda: next(ticks)), 2.0)
        self.assertEqual(ranks.sums, 4)

    def test_wrong_sum(self) -> None:
        ranks = Alone()
        with mock.patch.object(ranks, "sum"), self.assertRaisesRegex(SystemExit, "wrong sum of 4 bytes"):
            gpu.measure(ranks, 4, 1.0)

    def test_table(self) -> None:
        cases = [
            {"path": "nccl", "ranks": 2, "seconds": {4: 25e-6, 1 << 20: 1e-3}, "error": ""},
            {"path": "host", "ranks": 2, "seconds": {4: 50e-6}, "error": "cut short after 90 s"},
        ]
        page = gpu.table(cases, [4, 1 << 20], "A GPU.")
        self.assertIn("| path | ranks | 4 B | 1 MiB |\n", page)
        self.assertIn("| gorun --gpu-path nccl | 2 | 25 (0.0) | 1,000 (1.0) |\n", page)
        self.assertIn("| gorun --gpu-path host | 2 | 50 (0.0) | – |\n", page)
        self.assertTrue(page.endswith("- gorun --gpu-path host, 2 ranks: cut short after 90 s\n"))

    def test_another_path_until_the_limit(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            gorun = Path(directory) / "gorun"
            gorun.write_text(
                "#!/bin/sh\necho '{\"bytes\": 4, \"seconds\": 1.0}'\n"
                "echo 'gorun: rank 1: tensors on GPUs go by host, not by ipc: out of memory' >&2\n"
                "exec sleep 60\n"
            )
            gorun.chmod(0o755)
            found = gpu.run_case(str(gorun), "ipc", 2, 1, 1, [4], 2.0)
        self.assertEqual((found["seconds"], found["error"]), ({}, "cut short after 2 s"))

    def test_another_path(self) -> None:
        by_host = "gorun: rank 1: tensors on GPUs go by host, not by ipc: out of memory"
        unequal = "gorun: a: tensors on GPUs go by host: GPUs have different numbers of ranks"
        ipc = "gorun: a: tensors on GPUs go by ipc: 2 ranks share each GPU, of 1\n"
        self.assertEqual(gpu.another_path("ipc", ipc), "")
        self.assertEqual(gpu.another_path("ipc", ipc + by_host), by_host)
        self.assertEqual(gpu.another_path("ipc", unequal), unequal)
        self.assertEqual(gpu.another_path("ipc", ""), "no rank said by which path it went")
        self.assertEqual([gpu.another_path(name, "") for name in ("host", "torch-nccl", "copy")], [""] * 3)

    def test_over_the_standins(self) -> None:
        self.run_standins("nccl", 8)

    def test_shared_over_the_standins(self) -> None:
        self.run_standins("ipc", 1)

    def test_two_hosts_over_the_standins(self) -> None:
        self.run_standins("hierarchical", 8, "--hosts", "2")

    def test_hosts(self) -> None:
        self.assertEqual(gpu.hosts_of(8, 1), "localhost:8")
        self.assertEqual(gpu.hosts_of(8, 2), "localhost:4,127.0.0.1:4")
        unequal = gpu.run_case("gorun", "host", 1, 2, 8, [4], 1.0)
        self.assertIn("different numbers of ranks", unequal["error"])

    def run_standins(self, path: str, gpus: int, *more: str) -> None:
        gorun = ROOT / "bin" / "gorun"
        if not gorun.exists():
            self.skipTest(f"{gorun} is not built: make build")
        paths = [str(ROOT / "contrib" / "python"), str(STANDINS)]
        with mock.patch.object(sys, "path", [*paths, *sys.path]):
            import standin_gpu

            libraries = standin_gpu.libraries()
        with tempfile.TemporaryDirectory() as out:
            environ = {**os.environ, "LD_LIBRARY_PATH": libraries, "BENCH_STANDIN": str(gpus)}
            environ.pop("PYTHONPATH", None)
            command = [sys.executable, "-B", gpu.__file__, "--out", out, "--ranks", "2", "--paths", path]
            ended = subprocess.run(
                [*command, "--sizes", "4,4096", "--minutes", "1", "--gorun", str(gorun), *more],
                env=environ, capture_output=True, text=True, timeout=90, check=False,
            )  # fmt: skip
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            results = json.loads((Path(out) / "gpu.json").read_text())["results"]
            self.assertEqual([case["error"] for case in results], [""], results)
            self.assertEqual(sorted(results[0]["seconds"]), ["4", "4096"])
            self.assertIn("no measurement", (Path(out) / "gpu.md").read_text())


if __name__ == "__main__":
    unittest.main()
