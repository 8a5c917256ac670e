"""The wheel, installed into an empty environment and used there."""

import os
import platform
import re
import site
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tests_path import need

ROOT = Path(__file__).resolve().parents[3]
BINARY = ROOT / "bin" / "gorun"
NAME = re.search(r'^name = "(.*)"', (ROOT / "contrib/python/pyproject.toml").read_text(), re.MULTILINE)[1]
SCRIPT = """
import horovod, horovod.torch as hvd, torch
hvd.init()
print(hvd.rank(), hvd.size(), hvd.allreduce(torch.tensor(1.0), op=hvd.Sum).item(), horovod.__version__)
"""


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not BINARY.exists():
            raise unittest.SkipTest(f"{BINARY} is not built: make build")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GORUN", "PYTHON", "HOROVOD", "PIP_"))
        }
        arch = platform.machine()
        cls.wheel = cls.run_([sys.executable, ROOT / "contrib" / "tools" / "wheel.py", "--binary", BINARY,
                              "--arch", arch, "--out", cls.folder]).stdout.strip()  # fmt: skip
        # Empty but for what the machine has: torch cannot come from anywhere else.
        venv = [sys.executable, "-m", "venv", "--system-site-packages", cls.folder / "venv"]
        made = cls.run_(venv, check=False)
        if made.returncode:
            raise unittest.SkipTest("python cannot make environments (Debian: apt-get install python3-venv)")
        cls.bin = cls.folder / "venv" / "bin"
        if sys.prefix != sys.base_prefix:  # what the machine has is then in an environment itself
            (own,) = (cls.folder / "venv" / "lib").glob("python*/site-packages")
            (own / "outer.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
        cls.run_([cls.bin / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                  "--no-compile", "--disable-pip-version-check", cls.wheel])  # fmt: skip

    @classmethod
    def run_(cls, command, check=True):
        done = subprocess.run(
            [str(part) for part in command], env=cls.environ, cwd=cls.folder, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def test_name(self):
        version = r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\+[0-9a-z.]+)?"
        name = rf"^{NAME.replace('-', '_')}-{version}-py3-none-manylinux2014_\w+\.musllinux_1_1_\w+\.whl$"
        self.assertRegex(Path(self.wheel).name, name)

    def test_one_version(self):
        """Binary, package and metadata differ at most in how they write a pre-release."""
        text = f"import gorun, importlib.metadata as m; print(gorun.__version__, m.version('{NAME}'))"
        package, metadata = self.run_([self.bin / "python", "-c", text]).stdout.split()
        said = self.run_([self.bin / "gorun", "version"]).stdout.split()[1]
        for long, short in (("-alpha.", "a"), ("-beta.", "b"), ("-rc.", "rc")):
            said = said.replace(long, short)
        self.assertEqual([package, metadata], [said, said])
        self.assertNotEqual(package, "0.0.0+source")

    def test_metadata(self):
        text = """
import importlib.metadata as m, sys
about = m.metadata(sys.argv[1])
for name in ("License-Expression", "License-File", "Requires-Python", "Description-Content-Type", "Summary"):
    assert about[name], name
assert "MPL-2.0" in about["License-Expression"] and "horovodrun" in about.get_payload(), about
files = {str(path) for path in m.files(sys.argv[1])}
folder = next(path for path in files if path.endswith("/METADATA")).rpartition("/")[0]
for name in about.get_all("License-File"):
    assert f"{folder}/licenses/{name}" in files, name
assert "gorun/py.typed" in files and not any("/tests/" in path for path in files)
"""
        self.run_([self.bin / "python", "-c", text, NAME])

    def test_commands(self):
        need("torch")
        for command in (["gorun"], ["horovodrun"]):
            done = self.run_([self.bin / command[0], "-np", "2", self.bin / "python", "-c", SCRIPT])
            said = sorted(line.partition(":")[2] for line in done.stdout.splitlines())
            self.assertEqual(said, ["0 2 2.0 0.28.1", "1 2 2.0 0.28.1"], done.stderr)

    def test_alone(self):
        need("torch")
        self.assertEqual(self.run_([self.bin / "python", "-c", SCRIPT]).stdout, "0 1 1.0 0.28.1\n")

    def test_run_from_python(self):
        text = "import math, gorun; print(gorun.run(math.factorial, (5,), num_proc=2))"
        self.assertEqual(self.run_([self.bin / "python", "-c", text]).stdout, "[120, 120]\n")

    def test_uninstall_leaves_nothing(self):
        listed = self.run_([self.bin / "python", "-m", "pip", "show", "--files", NAME]).stdout
        for name in ("gorun/bin/gorun", "horovod/torch/__init__.py", "gorun/torch/optimizer.py"):
            self.assertIn(name, listed)
