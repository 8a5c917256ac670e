"""Three well-known kinds of script, as users have them, with two ranks on this host."""

import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from tests_path import need, need_torch

need_torch()
ROOT = Path(__file__).resolve().parents[3]
GORUN = ROOT / "bin" / "gorun"


class ExamplesTest(unittest.TestCase):
    def job(self, script, *arguments, flags=("-np", "2")):
        if not GORUN.exists():
            self.skipTest(f"{GORUN} is not built: make build")
        path = ROOT / "contrib" / "examples" / script
        self.assertIn("import horovod.torch as hvd", path.read_text())
        command = [GORUN, *flags, "--no-tag-output", sys.executable, "-B", path, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def test_digits(self):
        need("sklearn")
        said = self.job("digits_torch.py", "--epochs", "3", "--target", "0.8")
        self.assertRegex(said, r"final accuracy [89]\d\.\d+% with 2 ranks")

    def test_synthetic(self):
        small = "--batch-size 1 --image-size 32 --num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 2"
        for more in ([], ["--fp16-allreduce"]):
            self.assertRegex(self.job("synthetic_torch.py", *small.split(), *more), r"Total img/sec on 2 CPU")

    def test_synthetic_elastic(self):
        flags = "--min-np", "1", "-H", "localhost:2"
        said = self.job("synthetic_elastic_torch.py", "--num-batches", "20", flags=flags)
        self.assertIn("samples/sec on 2 rank(s)", said)

    def test_synthetic_elastic_with_a_host_more(self):
        """The script has more to do than it can: the job is ended when it goes on with the second host."""
        if not GORUN.exists():
            self.skipTest(f"{GORUN} is not built: make build")
        with tempfile.TemporaryDirectory() as folder:
            more = Path(folder) / "more"
            discover = Path(folder) / "hosts.sh"
            discover.write_text(f"#!/bin/sh\necho localhost:1\nif [ -e {more} ]; then echo 127.0.0.1:1; fi\n")
            discover.chmod(0o755)
            command = [
                GORUN, "--min-np", "1", "--host-discovery-script", discover, "--no-tag-output",
                sys.executable, "-B", ROOT / "contrib" / "examples" / "synthetic_elastic_torch.py",
                "--num-batches", "100000000", "--batch-size", "2",
            ]  # fmt: skip
            said = []
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as job:
                limit = threading.Timer(120, job.terminate)
                limit.start()
                for line in job.stdout:
                    said.append(line)
                    if "samples/sec on 1 rank(s)" in line:
                        more.touch()
                    elif "samples/sec on 2 rank(s)" in line:
                        break
                limit.cancel()
                job.terminate()
                said.append(job.communicate()[0])
        said = "".join(said)
        self.assertIn("samples/sec on 2 rank(s)", said)
        self.assertIn("epoch 2: 2 ranks on 2 hosts, because 127.0.0.1 joined", said)
