"""The native library as Python sees it: how it is loaded, and why not. tests/mp/test_native.py has jobs."""

import os
import subprocess
import sys
import tempfile
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
# Has the kernel refuse memfd_create to this process, by seccomp.
REFUSE = """
import ctypes, errno, os, platform, struct
number = {"x86_64": 319, "aarch64": 279}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(filter))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())  # seccomp
"""
REFUSED = REFUSE + """
from gorun import native
print(native.origin() or native.reason())
"""
INIT = """
import gorun.numpy as hvd
try:
    hvd.init()
except ValueError as error:
    print(error)
"""
# A policy may keep memory from being executed; another libc does not know the symbols.
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
            ("native.VERSION = 99", "and this package needs 99"),
        ):
            self.assertIn(said, run(BROKEN.format(change)))


    def test_memory_that_may_not_be_executed(self):
        """The library then is a file in the user's cache that nobody else can open. Nothing of it stays."""
        with tempfile.TemporaryDirectory() as home:
            origin = run(REFUSED, HOME=home)
            folder = Path(home, ".cache/gorun", sys.implementation.cache_tag)
            self.assertIn(f"from a file in {folder}", origin)
            self.assertIn("Operation not permitted", origin)
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
            self.assertEqual([path for path in folder.iterdir() if not path.name.startswith("gorun.")], [])
            self.assertEqual(run(REFUSE + LOADED, HOME=home), "ok")
            folder.chmod(0o777)
            self.assertIn("others may write to it", run(REFUSED, HOME=home))

    def test_neither_memory_nor_a_cache(self):
        said = run(REFUSED, XDG_CACHE_HOME="/dev/null/x")
        self.assertRegex(said, r"^.*not permitted.*; and /dev/null/x/gorun/.* refuses: .*Not a directory.*$")
        said = run(f"{REFUSE}\n{INIT}", XDG_CACHE_HOME="/dev/null/x")
        self.assertRegex(said, "^Horovod initialization failed. gorun's native library is not there: .*not p")
