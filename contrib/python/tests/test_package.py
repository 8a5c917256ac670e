"""How the package comes to a script: from a zip after a binary, and under the name of Horovod."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile
from pathlib import Path

from tests_path import need

ROOT = Path(__file__).resolve().parent.parent
keeps = unittest.skipIf(sys.version_info < (3, 10), "Python 3.9 has no place for a cache of modules in a zip")


class PackageTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.binary = Path(self.folder.name) / "gorun"
        with zipfile.ZipFile(self.binary, "w", zipfile.ZIP_DEFLATED) as archive:
            for part in ("gorun", "shim"):
                for path in sorted([*(ROOT / part).rglob("*.py"), *(ROOT / part).glob("*.so")]):
                    archive.write(path, path.relative_to(ROOT))
        self.binary.write_bytes(b"\x7fELF not really" * 1000 + self.binary.read_bytes())

    def script(self, text, *path, **variables):
        """Run a script with a PYTHONPATH and no gorun environment but variables; return what it printed."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GORUN_")}
        environ["PYTHONDONTWRITEBYTECODE"] = "1"
        environ.update(variables)
        environ["PYTHONPATH"] = os.pathsep.join(map(str, path))
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, env=environ,
            cwd=self.folder.name, timeout=120, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_alone_from_the_zip(self):
        text = """
            import gorun.numpy as hvd
            hvd.init()
            print(hvd.rank(), hvd.size(), hvd.allreduce([1.0, 2.0]).tolist(), hvd.broadcast_object("o"))
            """
        need("numpy")
        self.assertEqual(self.script(text, self.binary), "0 1 [1.0, 2.0] o")

    def compiled(self, **variables):
        """Import the package in a new process; return the modules that were compiled there."""
        text = """
            import sys
            compiled = set()
            def hook(event, args):
                if event == "compile" and "/gorun/gorun/" in str(args[1]):
                    compiled.add(str(args[1]).rpartition("/gorun/")[2])
            sys.addaudithook(hook)
            from gorun import basics, objects, _version
            print(basics.shutdown.__code__.co_filename.endswith("/gorun/gorun/basics.py"), *sorted(compiled))
            """
        home = {"HOME": self.folder.name, "XDG_CACHE_HOME": "", "PYTHONDONTWRITEBYTECODE": "", **variables}
        right, *names = self.script(text, self.binary, **home).split()
        self.assertEqual(right, "True")
        self.assertLessEqual({"__init__.py", "bytecode.py"}, set(names))
        return set(names) - {"__init__.py", "bytecode.py"}

    def kept(self):
        return Path(self.folder.name) / ".cache" / "gorun" / sys.implementation.cache_tag

    @keeps
    def test_compiles_a_module_once(self):
        first = self.compiled()
        self.assertLessEqual({"basics.py", "session.py", "objects.py"}, first)
        self.assertEqual(self.compiled(), set())
        self.assertEqual({path.stat().st_mode & 0o777 for path in [self.kept(), self.kept().parent]}, {0o700})
        self.assertEqual({path.stat().st_mode & 0o777 for path in self.kept().iterdir()}, {0o600})
        self.assertEqual(self.compiled(PYTHONOPTIMIZE="1"), first)
        self.assertEqual(self.compiled(PYTHONOPTIMIZE="1"), set())
        self.assertEqual(self.compiled(XDG_CACHE_HOME=f"{self.folder.name}/other"), first)
        self.assertEqual(self.compiled(XDG_CACHE_HOME="relative"), set())
        self.assertFalse((Path(self.folder.name) / "relative").exists())

    @keeps
    def test_compiles_what_has_changed(self):
        self.compiled()
        with zipfile.ZipFile(self.binary, "a") as archive, self.assertWarns(UserWarning):
            archive.writestr("gorun/_version.py", "__version__ = '7.8.9'\n")
        self.assertEqual(self.compiled(), {"_version.py"})
        text = "import gorun; print(gorun.__version__)"
        self.assertEqual(self.script(text, self.binary, HOME=self.folder.name), "7.8.9")
        damaged = [path for path in self.kept().iterdir() if path.name.startswith("gorun.session.")]
        content = bytearray(damaged[0].read_bytes())
        content[len(content) // 2] ^= 1
        damaged[0].write_bytes(content)
        self.assertEqual(self.compiled(), {"session.py"})
        damaged[0].write_bytes(content[:20])
        self.assertEqual(self.compiled(), {"session.py"})
        self.assertEqual(self.compiled(), set())

    @keeps
    def test_takes_nothing_that_others_may_write(self):
        every = self.compiled()
        self.kept().chmod(0o770)
        self.assertEqual(self.compiled(), every)
        self.kept().chmod(0o700)
        file = next(path for path in self.kept().iterdir() if path.name.startswith("gorun.session."))
        file.chmod(0o602)
        self.assertEqual(self.compiled(), {"session.py"})
        self.assertEqual(self.compiled(), set())  # it was replaced
        file.rename(self.kept() / "aside")
        file.symlink_to("aside")
        self.assertEqual(self.compiled(PYTHONDONTWRITEBYTECODE="1"), {"session.py"})
        self.assertTrue(file.is_symlink())
        self.kept().rename(f"{self.kept()}.aside")
        self.kept().symlink_to(f"{self.kept()}.aside")
        self.assertEqual(self.compiled(), every)
        if os.geteuid() == 0:
            self.kept().unlink()
            os.chown(self.kept().with_name(f"{self.kept().name}.aside"), 12345, -1)
            self.kept().with_name(f"{self.kept().name}.aside").rename(self.kept())
            self.assertEqual(self.compiled(), every)

    def test_compiles_without_a_home(self):
        every = self.compiled(HOME="/dev/null")
        self.assertEqual(self.compiled(HOME="/dev/null"), every)
        self.assertEqual(self.compiled(PYTHONDONTWRITEBYTECODE="1"), every)
        self.assertFalse(self.kept().exists())

    @keeps
    def test_forgets_a_file_that_was_not_finished(self):
        every = self.compiled()
        name = f"gorun.session.{sys.flags.optimize}"
        (self.kept() / name).rename(self.kept() / f"{name}.new")
        self.assertEqual(self.compiled(), {"session.py"})
        self.assertEqual(self.compiled(), {"session.py"})  # another rank may still be writing
        os.utime(self.kept() / f"{name}.new", (0, 0))
        self.assertEqual(self.compiled(), {"session.py"})
        self.assertEqual(self.compiled(), {"session.py"})
        self.assertEqual(self.compiled(), set())
        self.assertIn("session.py", every)

    def test_without_any_framework(self):
        text = """
            import sys
            sys.modules["numpy"] = sys.modules["torch"] = None
            from gorun import basics, objects
            basics.init()
            print(objects.allgather_object(5))
            """
        self.assertEqual(self.script(text, self.binary), "[5]")

    def test_launches_with_a_wheel_where_there_is_one(self):
        """What started a rank comes first on its path, and cannot launch on most hosts."""
        text = "from gorun import launch; print(launch.binary())"
        self.assertEqual(self.script(text, self.binary, self.folder.name), str(self.binary))
        wheel = Path(self.folder.name) / "site-packages"
        (wheel / "gorun" / "bin").mkdir(parents=True)
        (wheel / "gorun" / "bin" / "gorun").touch()
        (wheel / "gorun" / "__init__.py").touch()
        self.assertEqual(self.script(text, self.binary, wheel), str(wheel / "gorun" / "bin" / "gorun"))
        named = "import os; os.environ['GORUN'] = '/opt/gorun'; " + text
        self.assertEqual(self.script(named, self.binary, wheel), "/opt/gorun")

    def real_horovod(self):
        """Return a folder of the shape of a Horovod that was built."""
        real = Path(self.folder.name) / "site" / "horovod"
        (real / "torch").mkdir(parents=True)
        (real / "__init__.py").write_text("__version__ = 'real'\n")
        (real / "torch" / "__init__.py").write_text("from . import part\n")
        (real / "torch" / "part.py").write_text("import horovod\nname = horovod.__version__\n")
        (real / "torch" / "mpi_lib_v2.cpython-311-x86_64-linux-gnu.so").touch()
        return real

    def test_real_horovod_wins_outside_jobs(self):
        real = self.real_horovod()
        text = """
            import horovod.torch as hvd
            import horovod, sys
            print(hvd.part.name, horovod.__version__, any(entry.endswith("shim") for entry in sys.path))
            import gorun.objects
            """
        shim = self.binary / "shim"
        self.assertEqual(self.script(text, self.binary, shim, real.parent), "real real False")
        self.assertEqual(self.script(text, self.binary, f"{shim}/", real.parent), "real real False")
        plain = ROOT / "shim"
        self.assertEqual(self.script(text, ROOT, plain, real.parent), "real real False")

    def test_the_drop_in_wins_in_a_job(self):
        """The real one would not find its ranks there, unless it got a rendezvous (--no-horovod-shim)."""
        real = self.real_horovod()
        path = self.binary, self.binary / "shim", real.parent
        text = "import sys; sys.stderr = sys.stdout; import horovod; print(horovod.__version__)"
        said = f"gorun: using gorun's drop-in instead of {real}, which --no-horovod-shim would run\n0.28.1"
        self.assertEqual(self.script(text, *path, GORUN_SOCKET="@s", GORUN_RANK="0"), said)
        self.assertEqual(self.script(text, *path, GORUN_SOCKET="@s", GORUN_RANK="1"), "0.28.1")
        rendezvous = {"GORUN_SOCKET": "@s", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1"}
        self.assertEqual(self.script(text, *path, **rendezvous), "real")

    def test_a_source_tree_of_horovod_does_not(self):
        tree = Path(self.folder.name) / "source [1]" / "horovod"
        (tree / "torch").mkdir(parents=True)
        (tree / "torch" / "mpi_ops_v2.cc").touch()
        for package in (tree, tree / "torch"):
            (package / "__init__.py").write_text("raise ImportError('not built')")
        text = "import sys; sys.stderr = sys.stdout; import horovod; print(horovod.__version__)"
        said = f"gorun: {tree} is a source tree of Horovod that was not built: using gorun's drop-in\n0.28.1"
        self.assertEqual(self.script(text, self.binary, self.binary / "shim", tree.parent), said)

    def test_another_copy_of_the_drop_in_is_no_horovod(self):
        """A wheel of gorun has one, and ranks find the one of the binary first."""
        text = "import sys; sys.stderr = sys.stdout; import horovod; print(horovod.__version__)"
        self.assertEqual(self.script(text, self.binary, self.binary / "shim", ROOT / "shim"), "0.28.1")

    def test_a_folder_called_horovod_does_not(self):
        (Path(self.folder.name) / "horovod" / "scripts").mkdir(parents=True)
        text = "import horovod; print(horovod.__version__)"
        self.assertEqual(self.script(text, self.binary, self.binary / "shim"), "0.28.1")
