"""The checks find the mistakes that are planted here, and nothing in pages without any."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import runnable
from faults import Faults
from flags import Flags
from pages import ROOT
from source import Sources

FLAGS = Flags({"--help", "--np", "--elastic", "--tag-output"}, {"topo": {"--help", "--svg"}, "bench": {"--help"}})
MAKEFILE = "build: x\n\tgo build\nx:\ntest-all:\n"


class Tree(unittest.TestCase):
    """A small repository."""

    def setUp(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.write("Makefile", MAKEFILE)
        self.write("README.md", "# x\n\nIt is short.\n")
        self.write("docs/index.md", "# Home\n")
        self.write("mkdocs.yml", "nav:\n  - Home: index.md\n")
        self.write("worker/x_test.go", 'package x\nfunc TestOne(t *testing.T) { os.Getenv("GORUN_ONE") }\n')

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def source_faults(self, text: str, name: str = "docs/index.md") -> list[str]:
        self.write(name, text)
        faults = Faults()
        Sources(self.root, FLAGS, faults).check()
        return faults.lines()


class Mistakes(Tree):
    """Each planted mistake is one fault, and what resembles it is none."""

    def test_sources(self) -> None:
        for bad, good, fault in (
            ("[a](gone.md)", "[a](index.md) [b](../README.md) `[c](gone.md)`", "link to gone.md, which does not exist"),
            ("[a\nb](gone.md)", "[a\nb](index.md)", "link to gone.md, which does not exist"),
            ("![a](gone.svg)", "", "link to gone.svg, which does not exist"),
            ("[a](#no)", "## A `b`: c\n[a](#a-b-c)", "link to #no: index.md has no such heading"),
            ("[a](../README.md#no)", "[a](../README.md#x)", "link to ../README.md#no: README.md has no such heading"),
            ("`--gone`", "`--np`, `--svg`, `--nproc-per-node`, `--no-tag-output`",
             "--gone is no flag of gorun or of a program that flags.py lists"),
            ("`--no-gone`", "", "--no-gone is no flag of gorun or of a program that flags.py lists"),
            ("```bash\ngorun --svg x\n```", "```bash\ngorun topo --svg x\n```", "--svg is no flag of gorun"),
            ("```bash\ngorun topo \\\n  --gone\n```", "```bash\ngorun --np 2 python x.py --gone\n```",
             "--gone is no flag of gorun topo"),
            ("    gorun --gone\n", "    gorun --elastic\n", "--gone is no flag of gorun"),
            ("`make gone`", "`make x test-all`, make gone", "make gone: no such target"),
            ("```bash\ncd y && make A=1 gone\n```", "```bash\nmake A=1 build X='make gone'\n```",
             "make gone: no such target"),
            ("TestTwo", "TestOne, TestO*, Testing", "no test is called TestTwo"),
            ("`GORUN_TWO`", "`GORUN_ONE`, `GORUN_`", "nothing reads or sets GORUN_TWO"),
            ("`worker/y.go`", "`worker/x_test.go`, `worker/*.go`, `/worker/y.go`, `bin/gorun`, `some/where`",
             "worker/y.go does not exist"),
        ):
            with self.subTest(bad):
                found = self.source_faults(f"# Home\n\n{bad}\n")
                self.assertEqual([line.split(": ", 1)[1] for line in found], [fault])
                self.assertEqual(self.source_faults(f"# Home\n\n{good}\n"), [])


class Runnable(Tree):
    """Blocks run in one shell, and stop a page at the first command that fails."""

    def run_page(self, text: str) -> list[str]:
        steps = runnable.play(text).steps
        done = subprocess.run(["bash", "-c", runnable.script(steps)], cwd=self.root, stdout=subprocess.PIPE, text=True)
        faults = Faults()
        runnable.judge("p.md", steps, done.stdout, faults)
        return faults.lines()

    def test_run(self) -> None:
        good = "```bash runnable\ncd docs\nx=1\necho one; echo two 22 >&2\n```\n"
        more = "```bash runnable\n[ $x = 1 ]\npwd | grep docs\n```\n```bash\nfalse\n```\n"
        self.assertEqual(self.run_page(good + "```text output\none\n…\ntwo … \n```\n".replace("… ", "…2") + more), [])
        for bad, fault in (
            (good + "```text output\ntwo 22\none\n```\n", "does not print: one"),
            (good + "```text output\ntwo\n```\n" + more, "does not print: two"),
            ("```bash runnable\ntrue\nfalse | cat\necho end\n```\n" + more, "exited with status 1"),
            ("```bash runnable\nf() { (exit 3); }; f\n```\n", "exited with status 3"),
            (good + "```bash runnable\nexit 0\n```\n" + more, "its block did not end"),
            (good + "```bash runnable\nif then\n```\n", "its block did not end"),
            (good + "```bash runnable\necho $x; nosuchprogram\n```\n", "exited with status 127: nosuchprogram"),
        ):
            with self.subTest(bad):
                [line] = self.run_page(bad)
                self.assertIn(fault, line)


class PictureTest(unittest.TestCase):
    """The picture of a lost host is that of its recording."""

    def test_drawn_anew(self) -> None:
        sys.path.insert(0, str(ROOT / "contrib" / "demo"))
        import picture

        drawn = picture.draw((ROOT / "contrib" / "demo" / "loss.cast").read_text())
        self.assertEqual(drawn, (ROOT / "docs" / "pictures" / "loss.svg").read_text())


if __name__ == "__main__":
    unittest.main()
