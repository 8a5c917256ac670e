"""The native library as Python sees it: how it is loaded, and why not. tests/mp/test_native.py has jobs."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GORUN = ROOT / "bin/gorun"

SHOW = "from gorun import native; print(native.library() is not None, native.reason())"
LOADED = """
import ctypes, os
from gorun import basics, native
basics.init()
library = native.attach()
assert library is native.attach()
assert ctypes.CDLL(native.path())._handle == library._handle
assert (library.gorun_rank(), library.gorun_size(), library.gorun_joined()) == (0, 1, 1)
x = (ctypes.c_double * 3)(1, 2, 3)
assert library.gorun_allreduce(b"x", x, x, ctypes.c_int64(3), 12, 1) == 0
assert library.gorun_allreduce(b"", x, x, ctypes.c_int64(3), 12, 1) != 0 and "name" in native.error()
child = os.fork()
if child == 0:
    os._exit(0 if library.gorun_barrier(b"x") != 0 and "forked" in native.error() else 1)
assert os.waitpid(child, 0)[1] == 0
for life in range(3):
    basics.shutdown()
    assert not library.gorun_joined()
    basics.init()
    assert native.attach().gorun_joined()
print("ok")
"""
REFUSE = """
def refuse(*arguments):
    raise PermissionError(errno.EACCES, "may not")
os.memfd_create = refuse
"""
# The kernel, or a policy, may keep memory from being executed; another libc does not know the symbols.
BROKEN = """
import errno, os, pkgutil
from gorun import native
{}
assert native.library() is None
print(native.reason())
"""


def run(program, **environ):
    """Run a program with the binding of the built binary, outside of a job."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(GORUN), **environ}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@unittest.skipUnless(GORUN.exists(), "make build")
class NativeTest(unittest.TestCase):
    def setUp(self):
        if "comes without it" in run(SHOW):
            self.skipTest("no library was built: apt-get install gcc, or make zig-ready")

    def test_loaded(self):
        self.assertEqual(run(SHOW), "True")
        self.assertEqual(run(LOADED), "ok")

    def test_broken(self):
        for change, said in (
            ("pkgutil.get_data = lambda *a: None", "comes without it"),
            ("pkgutil.get_data = lambda *a: b'\\x7fELF and no more'", "/proc/self/fd/"),
            (REFUSE, "may not"),
            ("native.VERSION = 99", "and this package needs 99"),
        ):
            self.assertIn(said, run(BROKEN.format(change)))


if __name__ == "__main__":
    unittest.main()
