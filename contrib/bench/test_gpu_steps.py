"""Tests of gpu_steps.py: its table, and a run with a tiny model on CPUs."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import gpu_steps

ROOT = Path(__file__).resolve().parents[2]

try:
    import torch
except ImportError:
    torch = None


class Test(unittest.TestCase):
    def test_hidden(self) -> None:
        for whole, want in ((10.0, 1.0), (10.5, 0.75), (12.0, 0.0), (15.0, 0.0), (9.0, 1.0)):
            self.assertEqual(gpu_steps.hidden({"without": 10.0, "with": whole, "alone": 2.0}), want)

    def test_table(self) -> None:
        results = [
            {
                "path": "nccl",
                "model": "resnet50",
                "ranks": 2,
                "error": "",
                "without": 0.1,
                "with": 0.102,
                "alone": 0.02,
            },
            {"path": "host", "model": "resnet50", "ranks": 2, "error": "cut short after 120 s"},
        ]
        page = gpu_steps.table(results, "A GPU.", "out: 20.0 GB/s")
        self.assertIn("| resnet50 | gorun --gpu-path nccl | 2 | 100.00 | 102.00 | 20.00 | 90% |\n", page)
        self.assertIn("| resnet50 | gorun --gpu-path host | 2 | – | – | – | – |\n", page)
        self.assertIn("\nCopies of 256 MiB, out: 20.0 GB/s.\n", page)
        self.assertTrue(page.endswith("- resnet50, gorun --gpu-path host, 2 ranks: cut short after 120 s\n"))

    @unittest.skipUnless(torch, "no torch")
    def test_parameters(self) -> None:
        model, images, classes = gpu_steps.resnet50(small=False)
        self.assertEqual(sum(p.numel() for p in model.parameters()), 25_557_032)
        self.assertEqual((len(list(model.parameters())), classes), (161, 1000))

    @unittest.skipUnless(torch, "no torch")
    def test_run(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            job = subprocess.run(
                [
                    sys.executable,
                    "-B",
                    ROOT / "contrib/bench/gpu_steps.py",
                    "--small",
                    "--paths",
                    "host",
                    "--out",
                    directory,
                ],
                capture_output=True,
                text=True,
                timeout=240,
            )
            self.assertEqual(job.returncode, 0, job.stderr)
            results = json.loads((Path(directory) / "steps.json").read_text())["results"]
        self.assertEqual([case["error"] for case in results], ["", ""], job.stderr)
        self.assertEqual([case["model"] for case in results], ["resnet50", "transformer"])
        for case in results:
            self.assertTrue(0 < case["without"] and 0 < case["alone"] < 60 and 0 < case["with"], case)
            self.assertIn(f"| {case['model']} | gorun --gpu-path host | 2 |", job.stdout)


if __name__ == "__main__":
    unittest.main()
