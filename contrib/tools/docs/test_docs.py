"""The checks find the mistakes that are planted here, and nothing in pages without any."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from playwright.sync_api import sync_playwright

import readability
import runnable
from browse import Browser, chromium, served
from built import Site
from faults import Faults
from flags import Flags
from pages import Stage, blocks
from source import Sources, slug

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

    def sentence_faults(self, text: str) -> list[str]:
        self.write("README.md", text)
        faults = Faults()
        readability.check(self.root, {"README.md": text}, faults)
        return faults.lines()

    def site_faults(self, html: str, nav: str = "  - Home: index.md\n") -> list[str]:
        self.write("build/site/index.html", html)
        self.write("mkdocs.yml", "nav:\n" + nav)
        faults = Faults()
        Site(self.root, faults).check()
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

    def test_rows_are_held(self) -> None:
        head = "| what | held by |\n|---|---|\n"
        self.write("worker/test_x.py", "class X:\n    def test_two(self):\n    def test_three(self):\n")
        self.write("other/test_x.py", "class X:\n    def test_three(self):\n")
        good = head + "| a | `TestOne`, `test_two` |\n| b | not gorun's |\n| c | `test_three` of `other` |\n"
        self.assertEqual(self.source_faults(good, "docs/security.md"), [])
        for bad, fault in (
            ("| a |\n|---|\n", "the last column of a table is not called held by"),
            (head + "| a | b |\n", "no test holds this row, and it is not said to be not gorun's"),
            (head + "| a | b | `TestOne` |\n", "a row with another number of cells than its table"),
            (head + "| a | `test_four` |\n", "test_four is a test of nothing"),
            (head + "| a | `test_three` |\n", "test_three is a test of other, worker"),
            (head + "| a | `TestOne` of `other` |\n", "TestOne is a test of worker"),
        ):
            [found] = self.source_faults(bad, "docs/security.md")
            self.assertEqual(found.split(": ", 1)[1], fault)

    def test_sentences(self) -> None:
        self.assertEqual(self.sentence_faults("# x\n\n" + "It is short. " * 9), [])
        [fault] = self.sentence_faults("Word " * 25 + "word. It is. " + "It is short. " * 9)
        self.assertIn("a sentence of 26 words", fault)
        [fault] = self.sentence_faults(("Word " * 19 + "word. ") * 3)
        self.assertIn("20.0 words in the mean", fault)
        [fault] = self.sentence_faults("It is short. " * 800)
        self.assertIn("10400 bytes", fault)

    def test_site(self) -> None:
        for bad, good, fault in (
            ('<a href="gone.html">', '<a href="index.html"><a href="https://x.org">',
             "link to gone.html, which does not exist"),
            ('<a href="#no">', '<p id="no"><a href="#no">', "link to #no: no such anchor"),
            ('<script src="https://x.org/a.js"></script>', "", "loads https://x.org/a.js from another host"),
            ('<link rel="stylesheet" href="//x.org/a.css">', "", "loads //x.org/a.css from another host"),
            ('<img src="gone.svg">', '<img src="data:x">', "loads gone.svg, which does not exist"),
            ("<p>see\n- one</p>", "<p>see</p><pre>- one</pre>", "shows Markdown: - one"),
            ("<p>see [a](b.md)</p>", "<p><code>[a](b.md)</code></p>", "shows Markdown: ](b.md)"),
        ):
            with self.subTest(bad):
                self.assertEqual([line.split(": ", 1)[1] for line in self.site_faults(bad)], [fault])
                self.assertEqual(self.site_faults(good), [])
        self.write("build/site/a.css", "@import '//x.org/b.css'; a { background: url(https://x.org/c.png) }")
        self.assertEqual(len(self.site_faults("")), 2)

    def test_navigation(self) -> None:
        self.write("docs/a.md", "# A\n")
        self.assertEqual(self.site_faults(""), ["mkdocs.yml: the navigation lacks a.md"])
        self.assertEqual(self.site_faults("", "  - index.md\n  - S:\n    - A: a.md\n"), [])
        self.assertEqual(len(self.site_faults("", "  - index.md\n  - a.md\n  - b.md\n  - a.md\n")), 2)
        self.write("docs/decisions/README.md", "| [1](0001-x.md) |")
        self.write("docs/decisions/0001-x.md", "# 1\n")
        self.write("docs/decisions/0002-y.md", "# 2\n")
        nav = "  - index.md\n  - a.md\n  - decisions/README.md\n"
        self.assertEqual(self.site_faults("", nav), ["docs/decisions/README.md: its table lacks decisions/0002-y.md"])


class Staging(Tree):
    """Pages become what the generator reads."""

    def convert(self, text: str) -> str:
        self.write("docs/guides/a.md", text)
        return Stage(self.root, self.root / "out").convert("guides/a.md", text)

    def test_lists(self) -> None:
        self.assertEqual(
            self.convert("see\n- one\n  more\n  - two\n- three\n\nend\n"),
            "see\n\n- one\n    more\n    - two\n- three\n\nend\n",
        )
        self.assertEqual(self.convert("on node\n0. It is\n"), "on node\n0. It is\n")
        fenced = self.convert("1. one\n   ```bash runnable\n   x\n   ```\n")
        self.assertEqual(fenced, "1. one\n    ```bash\n    x\n    ```\n")

    def test_links(self) -> None:
        self.assertEqual(self.convert("[a](../index.md#x)"), "[a](../index.md#x)\n")
        self.assertEqual(self.convert("[a](../../README.md)"), "[a](../index.md)\n")
        self.assertEqual(self.convert("[`a`\nb](../../worker/x_test.go)"), "`a`\nb\n")
        self.assertEqual(self.convert("`[a](../../README.md)`"), "`[a](../../README.md)`\n")

        self.assertEqual(self.convert("```` ```x ```` [a](../../README.md)"), "```` ```x ```` [a](../index.md)\n")

    def test_blocks(self) -> None:
        [first, second] = blocks("a\n```bash runnable\nx\n```\n~~~\n```\n~~~\n")
        self.assertEqual((first.line, first.info, first.lines), (2, "bash runnable", ["x"]))
        self.assertEqual(second.lines, ["```"])

    def test_slug(self) -> None:
        self.assertEqual(slug("What `--np` does, and [why](x.md)"), "what---np-does-and-why")


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

    def test_files(self) -> None:
        found = runnable.play("```python file=a.py\nx\n```\n```text output\ny\n```\n")
        self.assertEqual((found.files, found.steps), ({"a.py": ["x"]}, []))


@unittest.skipUnless(chromium(), "apt-get install chromium")
class Opened(Tree):
    """Chromium finds what is wrong with a page."""

    def test_browse(self) -> None:
        head = '<!DOCTYPE html><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        self.write("good.html", head + "<article><pre style='overflow: auto'>" + "x" * 999 + "</pre></article>")
        self.write("bad.html", head + "<script>console.error('planted'); missing()</script><img src='gone.svg'>"
                   "<img src='http://127.0.0.2:8009/a.svg'><article><p style='width: 999px'>xxx")
        faults = Faults()
        with served(self.root) as base, sync_playwright() as p:
            browser = p.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = Browser(browser.new_context(), base, faults)
            page.open("good.html")
            self.assertEqual(faults.lines(), [])
            page.open("bad.html")
            browser.close()
        found = "\n".join(faults.lines())
        for fault in ("console: planted", "script: missing is not defined", "picture gone.svg is broken", "status 404",
                      "asks another host for http://127.0.0.2:8009/a.svg", "wider than a screen of 390 pixels: p xxx"):
            self.assertIn(fault, found)


if __name__ == "__main__":
    unittest.main()
