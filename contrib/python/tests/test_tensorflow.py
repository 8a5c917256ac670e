"""One program over TensorFlow, where make frameworks-ready has made a Python; make tensorflow runs all."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gorun-ci")


class TensorFlowTest(unittest.TestCase):
    def test_operations(self):
        pythons = sorted(CACHE.glob("tensorflow-*/ready"))
        if not pythons:
            self.skipTest("no Python with TensorFlow: make frameworks-ready")
        if not (HERE.parents[2] / "bin" / "gorun").exists():
            self.skipTest("bin/gorun is not built: make build")
        python = pythons[-1].parent / "bin" / "python"
        command = [sys.executable, "-B", HERE / "tf" / "run.py", python, "ops 2"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertRegex(ended.stdout, "^ok .*ops 2")
