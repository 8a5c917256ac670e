"""The elastic programs that the fault tests run, and the example, undisturbed and alone."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(script, *arguments):
    """Run a script as a user without gorun does."""
    path = os.pathsep.join(str(ROOT / "contrib/python" / part) for part in ("", "shim"))
    environ = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-B", str(ROOT / script), *arguments]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    if ended.returncode and "No module named" in ended.stderr:
        raise unittest.SkipTest(ended.stderr.splitlines()[-1])
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


class ScriptTest(unittest.TestCase):
    def test_steps(self):
        ended = run("testdata/elastic/steps.py", "--steps", "25")
        self.assertEqual(re.findall(r"commit (\d+) epoch 1 size 1", ended), ["10", "20"])
        self.assertIn("done rank 0 of 1: steps 25 epoch 1 worlds 1 weights ", ended)
        failed = run("testdata/elastic/steps.py", "--steps", "25", "--fail", "0@15")
        self.assertIn("steps 25 epoch 1 worlds 2", failed)
        self.assertEqual(failed.split()[-1], ended.split()[-1], "the weights depend on the failure")

    def test_digits(self):
        ended = run("testdata/elastic/digits.py", "--epochs", "4", "--target", "90")
        self.assertRegex(ended, r"done rank 0 of 1: pid \d+ batches 360 ")

    def test_example(self):
        ended = run("contrib/examples/synthetic_elastic_torch.py", "--num-batches", "20")
        self.assertEqual(len(re.findall(r"samples/sec on 1 rank", ended)), 3)


if __name__ == "__main__":
    unittest.main()
