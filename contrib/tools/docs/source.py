"""What the sources of the pages name: links, anchors, flags, make targets, tests, variables and paths."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from faults import Faults
from flags import Flags
from pages import blocks, pages, prose

# Records of the past, which name what no longer exists.
HISTORY = ("CHANGELOG.md", "docs/changelog.md", "docs/decisions/")
# What make and users create.
MADE = ("bin/", "build/", "dist/")
# Languages of the blocks that hold command lines.
SHELL = ("bash", "sh", "console", "shell", "")
SOURCES = (".go", ".py", ".c", ".h", ".sh", "Makefile", ".yaml", ".service")

HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?(?: *\{ *#([\w-]+) *\})?$", re.M)
SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINKS = (
    re.compile(r"\]\(<?([^()\s>]+(?:\([^()]*\))?)>?(?:\s+\"[^\"]*\")?\)"),
    re.compile(r"(?:src|href)=\"([^\"]+)\""),
    re.compile(r"^ {0,3}\[[^\]]+\]: *(\S+)", re.M),
)
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
MAKE = re.compile(
    r"(?:^|[$;&|])\s*(?:[A-Z]\w*=\S+ )*make"
    r"((?: +(?:-\w+|[A-Z_]\w*=(?:\"[^\"]*\"|'[^']*'|\S+)|[a-z][\w-]*))+)"
)
TEST = re.compile(r"\b(?:Test|Fuzz|Benchmark)[A-Z]\w*\b")
# A test that holds a row of a table, with its directory where several have that name.
HOLDS = re.compile(r"`((?:Test[A-Z]|test_)\w+)`(?: of `([\w/-]+)`)?")
# Pages of promises, each with the tests that hold it in the last column, and the word for what is another's to hold.
HELD, OTHERS_DO = ("docs/security.md",), "not gorun's"
DEFINED = re.compile(r"^(?:func ((?:Test|Fuzz|Benchmark)\w+)\(|class (Test\w+)| +def (test_\w+))", re.M)
VARIABLE = re.compile(r"\bGORUN_[A-Z0-9_]+\b")
PATH = re.compile(r"(?<![\w/.~$@:-])(?:\./)?((?:[\w.-]+/)+[\w.*@-]*)")


def line_of(text: str, at: int) -> int:
    """Return the number of the line at an offset."""
    return text.count("\n", 0, at) + 1


def slug(heading: str) -> str:
    """Return the anchor that code hosts and the site give a heading."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    heading = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: its headings, and the ids of its HTML."""
    found: set[str] = set()
    for m in HEADING.finditer(prose(text)):
        name, n = m[2] or slug(m[1]), 0
        while f"{name}{f'-{n}' if n else ''}" in found:
            n += 1
        found.add(f"{name}{f'-{n}' if n else ''}")
    found.update(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    return found


class Sources:
    """The sources of the pages, and what they may name."""

    def __init__(self, root: Path, flags: Flags, faults: Faults) -> None:
        self.root, self.flags, self.faults = root, flags, faults
        files = sorted({*pages(root).values(), root / "README.md"})
        self.texts = {path.relative_to(root).as_posix(): path.read_text() for path in files}
        makefile = (root / "Makefile").read_text()
        self.targets = {t for m in re.findall(r"^([a-z0-9][\w./ -]*):(?!=)", makefile, re.M) for t in m.split()}
        self.top = {p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")}
        self.tests: dict[str, set[str]] = {}  # with the directories that have them
        self.variables: set[str] = set()
        self.collect()

    def collect(self) -> None:
        """Collect the tests and the environment variables that the sources declare or read."""
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout
        for path in (self.root / name for name in listed.splitlines() if name.endswith(SOURCES)):
            if path.is_file():
                text = path.read_text(errors="replace")
                folder = path.parent.relative_to(self.root).as_posix()
                for m in DEFINED.finditer(text):
                    self.tests.setdefault(m[1] or m[2] or m[3], set()).add(folder)
                self.variables.update(VARIABLE.findall(text))

    def check(self) -> None:
        """Check every page."""
        for name, text in self.texts.items():
            self.links(name, text)
            if not name.startswith(HISTORY):
                self.words(name, text)
                if name in HELD:
                    self.held(name, text)
                for number, line, shell in code(text):
                    self.command(f"{name}:{number}", line, shell)
        self.navigation()

    def navigation(self) -> None:
        """Check that the navigation has every page once, and nothing else, and the first page each guide."""
        listed = re.findall(r"(\S+\.md)$", (self.root / "mkdocs.yml").read_text(), re.M)
        records = {name for name in pages(self.root) if re.match(r"decisions/\d", name)}
        for name in sorted({*listed} ^ {*pages(self.root)} - records | {n for n in listed if listed.count(n) > 1}):
            self.faults.add("mkdocs.yml", f"the navigation has {name} {listed.count(name)} times")
        for name in (n for n in self.texts if n.startswith("docs/guides") and n[5:] not in self.texts["docs/index.md"]):
            self.faults.add("docs/index.md", f"it does not link {name}")
        table = (self.root / "docs/decisions/README.md").read_text() if records else ""
        for name in sorted(n for n in records if f"({n.split('/')[1]})" not in table):
            self.faults.add("docs/decisions/README.md", f"its table lacks {name}")

    def links(self, name: str, text: str) -> None:
        """Check that each link of a page leads to a file of the tree and to an anchor in it."""
        page = self.root / name
        plain = re.sub(r"(?<!\[)(`+)(?!`).+?(?<!`)\1(?!`|\])", lambda m: " " * len(m[0]), prose(text))
        for at, target in [(m.start(), m[1]) for pattern in LINKS for m in pattern.finditer(plain)]:
            if re.match(r"[a-z]+:", target):
                continue
            where = f"{name}:{line_of(plain, at)}"
            file, _, anchor = target.partition("#")
            to = (page.parent / unquote(file)).resolve() if file else page
            if not to.exists():
                self.faults.add(where, f"link to {target}, which does not exist")
            elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text()):
                self.faults.add(where, f"link to {target}: {to.name} has no such heading")

    def words(self, name: str, text: str) -> None:
        """Check the tests and variables that a page names anywhere."""
        for m in TEST.finditer(text):
            if m[0] not in self.tests and not text.startswith("*", m.end()):
                self.faults.add(f"{name}:{line_of(text, m.start())}", f"no test is called {m[0]}")
        for m in VARIABLE.finditer(text):
            if m[0] not in self.variables and not m[0].endswith("_"):
                self.faults.add(f"{name}:{line_of(text, m.start())}", f"nothing reads or sets {m[0]}")

    def held(self, name: str, text: str) -> None:
        """Check that each row of a page's tables names tests, which exist, or says that it is another's."""
        header = ""
        for number, line in enumerate(text.splitlines(), 1):
            last, where = line.strip("| ").rpartition("|")[2].strip(), f"{name}:{number}"
            if not line.startswith("|"):
                header = ""
            elif not header:
                header = line
                if last != "held by":
                    self.faults.add(where, "the last column of a table is not called held by")
            elif line.count("|") != header.count("|"):
                self.faults.add(where, "a row with another number of cells than its table")
            elif not last.startswith("---") and last != OTHERS_DO and not HOLDS.search(last):
                self.faults.add(where, f"no test holds this row, and it is not said to be {OTHERS_DO}")
            for test, folder in HOLDS.findall(last) if header else ():
                at = self.tests.get(test, set())
                if folder and folder not in at or not folder and len(at) != 1:
                    self.faults.add(where, f"{test} is a test of {', '.join(sorted(at)) or 'nothing'}")

    def command(self, where: str, line: str, shell: bool) -> None:
        """Check the make targets, flags and paths in a line or span of code."""
        for m in MAKE.finditer(line) if shell else ():
            for word in QUOTED.sub("x", m[1]).split():
                if re.fullmatch(r"[a-z][\w-]*", word) and word not in self.targets:
                    self.faults.add(where, f"make {word}: no such target")
        for fault in self.flags.wrong(line, others=where.startswith("docs/migrate/")):
            self.faults.add(where, fault)
        for m in PATH.finditer(line):
            path = m[1].rstrip("./")
            if path.split("/")[0] not in self.top or m[1].startswith(MADE) or re.search(r"[A-Z]{3,}$", path):
                continue
            if not any(self.root.glob(path)):
                self.faults.add(where, f"{path} does not exist")


def code(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each line of code blocks and each code span with its line number, and whether a shell might read it."""
    for block in blocks(text):
        joined, start = "", 0
        for number, line in enumerate(block.lines, block.line + 1):
            start = start or number
            if line.endswith("\\"):
                joined += line[:-1]
                continue
            yield start, joined + line, block.info.split(" ")[0] in SHELL
            joined, start = "", 0
    plain = prose(text)
    for number, line in enumerate(plain.split("\n"), 1):
        if line.startswith("    ") and "`" not in line and not re.match(r"\s+([-*+]|\d+\.) ", line):
            yield number, line, True
    for m in SPAN.finditer(plain):
        yield line_of(plain, m.start()), m[2].replace("\n", " "), True
