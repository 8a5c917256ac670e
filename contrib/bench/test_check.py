"""Tests of the comparison of two binaries."""

import argparse
import shutil
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import binaries
import check
import growth
import programs
from programs import Program, Setting, Sizes


class Test(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def binary(self, name: str, micros: float, status: int = 0) -> Path:
        """A program in the place of gorun, whose operations take so long."""
        path = self.directory / name
        row = f'{{"rows": [{{"size": 4, "p50_us": {micros}, "wrong": 0}}]}}'
        path.write_text(f"#!/bin/sh\necho '{row}'\nexit {status}\n")
        path.chmod(0o755)
        return path

    def rows(self, old: Path, new: Path) -> list[check.Row]:
        args = argparse.Namespace(rounds=1, min_time=0.1, timeout=20.0)
        part = check.Part(Setting("1 host", 2), programs.GORUN, Sizes(4, 4, 4))
        program = Program(programs.GORUN, "1", programs.gorun)
        with mock.patch("sys.stderr"):
            return check.measure(part, program, {check.OLD: (old, ""), check.NEW: (new, "")}, args)

    def test_slower_than_nine_tenths(self) -> None:
        old = self.binary("old", 9.0)
        for micros, slower in ((8.0, False), (9.9, False), (10.1, True)):
            (row,) = self.rows(old, self.binary("new", micros))
            self.assertEqual((row.title, row.old, row.new), ("1 host, gorun, 4 B", 9.0, micros))
            self.assertEqual(row.slower(), slower)
        self.assertEqual(check.table([row])[-1], "| 1 host, gorun, 4 B | 9.0 | 10.1 | 0.89 **slower** |")

    def test_a_daemon_that_needs_more_memory(self) -> None:
        sizes = {"new": 22, "old": 16}

        def run(*words: object, binary: Path) -> None:
            words[-1].own = sizes[binary.name] << 20

        with mock.patch.object(growth, "run", run), mock.patch("sys.stderr"):
            rows = check.memory({side: (Path(side), "") for side in sizes}, 1)
            sizes["new"] = 20  # a few MiB are nothing
            self.assertEqual(
                {row.slower() for row in check.memory({s: (Path(s), "") for s in sizes}, 1)}, {False}
            )
        self.assertEqual({row.slower() for row in rows}, {True})
        self.assertEqual(
            check.table(rows, "MiB", "larger")[2], "| 1 x 2 ranks, 64 MiB | 16.0 | 22.0 | 0.73 **larger** |"
        )

    def test_what_fails_is_an_error_and_no_row(self) -> None:
        with self.assertRaisesRegex(SystemExit, "1 host, gorun: new failed in round 1 of 1: exit status 3"):
            self.rows(self.binary("old", 9.0), self.binary("new", 9.0, status=3))

    def test_what_is_slower_once_only_is_not_slower(self) -> None:
        slow, quick, third = check.Row("a", 1.0, 2.0), check.Row("a", 1.0, 1.0), check.Row("b", 1.0, 0.5)
        self.assertEqual(check.confirmed([slow, third], [quick, check.Row("b", 1.0, 9.0)]), [quick, third])
        self.assertEqual(check.confirmed([slow], [slow]), [slow])

    def test_c_programs_load_the_library_of_their_binary(self) -> None:
        with_library, without = self.directory / "with", self.directory / "without"
        for path, names in ((with_library, [binaries.LIBRARY]), (without, ["gorun/__init__.py"])):
            with zipfile.ZipFile(path, "w") as archive:
                for name in names:
                    archive.writestr(name, f"of {path.name}")
        with mock.patch.object(binaries, "BUILD", self.directory):
            library = binaries.library_of(with_library, check.OLD)
            self.assertEqual(Path(library, "libgorun.so").read_text(), "of with")
            self.assertEqual(binaries.library_of(without, check.NEW), "")
        setting = Setting("", 2, binary="/old/gorun", library=library)
        words = programs.gorun_private(setting, Sizes(4, 4, 4), 0.1)
        self.assertEqual(words[0], "/old/gorun")
        self.assertIn(f"LD_LIBRARY_PATH={library}", words)
        for starter in programs.gorun, programs.gorun_torch, programs.gorun_ddp:
            self.assertEqual(starter(setting, Sizes(4, 4, 4), 0.1)[0], "/old/gorun")

    @unittest.skipIf(shutil.which("cc") is None, "no C compiler")
    def test_the_library_of_a_binary_that_has_none_is_made_in_its_tree(self) -> None:
        binary = self.directory / "tree" / "bin" / "gorun"
        source = self.directory / "tree" / "contrib" / "c" / "gorun.c"
        for path in binary, source:
            path.parent.mkdir(parents=True)
        source.write_text("int gorun_init(void) { return 0; }\n")
        with zipfile.ZipFile(binary, "w"):
            pass
        with mock.patch.object(binaries, "BUILD", self.directory):
            library = binaries.library_of(binary, check.OLD)
        self.assertIn(b"gorun_init", Path(library, "libgorun.so").read_bytes())

    def test_neither_a_binary_nor_a_commit(self) -> None:
        with self.assertRaisesRegex(SystemExit, "is neither a binary nor a commit"):
            binaries.find("no-such-thing")


if __name__ == "__main__":
    unittest.main()
