"""The pages of the documentation: which files they are, and how they become input of the site's generator.

The sources are Markdown as code hosts show it. The generator's Markdown differs in small things, so pages are copied
to a staging directory and changed on the way: words behind a fence's language are dropped, lists get an empty line
before them and indentation by four, and links to files that the site does not have become plain text.
"""

import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# Files outside docs that are pages of the site, by their name there.
ELSEWHERE = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md", "SUPPORT.md": "support.md",
    "collective/link/PROTOCOL.md": "protocols/link.md",
    "rendezvous/wire/PROTOCOL.md": "protocols/wire.md",
    "worker/session/codec/PROTOCOL.md": "protocols/rank.md",
    "contrib/vsphere/README.md": "guides/vcenter.md",
}
# The site's first page stands for README, which repeats it in short.
SAME = {"README.md": "index.md"}

FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*([^`]*)$")
ITEM = re.compile(r"^( *)([-*+]|\d+[.)])( +)(?=\S)")
LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*)\]\(([^()\s]+)(\s+\"[^\"]*\")?\)")
SPAN_OR_LINK = re.compile(rf"(?P<link>{LINK.pattern})|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)", re.S)


@dataclass
class Block:
    """A fenced block of code."""

    line: int  # of the fence, from 1
    info: str  # what stands behind the fence
    lines: list[str] = field(default_factory=list)


def pages(root: Path) -> dict[str, Path]:
    """Return the file of each page by its name in the site."""
    found = {path.relative_to(root / "docs").as_posix(): path for path in sorted((root / "docs").rglob("*.md"))}
    for source, name in ELSEWHERE.items():
        if (root / source).exists():
            found[name] = root / source
    found.setdefault("index.md", root / "README.md")
    return found


def split(text: str) -> Iterator[tuple[int, str, Block | None]]:
    """Yield each line of a page with its number and, inside a fenced block and at its fences, the block."""
    block, end = None, ""
    for number, line in enumerate(text.splitlines(), 1):
        if block is None:
            m = FENCE.match(line)
            if m:
                block, end = Block(number, m[3].strip()), m[2]
            yield number, line, block
        elif line.strip().startswith(end) and not line.strip().strip(end[0]):
            yield number, line, block
            block = None
        else:
            block.lines.append(line)
            yield number, line, block


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    for _, _, block in split(text):
        if block is not None and (not found or found[-1] is not block):
            found.append(block)
    return found


def prose(text: str) -> str:
    """Return a page without its fenced blocks: each of their lines becomes an empty one."""
    return "\n".join("" if block else line for _, line, block in split(text))


class Stage:
    """Writes the pages as the generator reads them."""

    def __init__(self, root: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.pages = pages(root)
        self.names = {path.relative_to(root).as_posix(): name for name, path in self.pages.items()}
        for source, name in SAME.items():
            self.names[source] = name

    def write(self) -> None:
        """Write all pages, and copy the files beside them."""
        if self.out.exists():
            shutil.rmtree(self.out)
        for path in sorted((self.root / "docs").rglob("*")):
            if path.is_file() and path.suffix != ".md":
                target = self.out / path.relative_to(self.root / "docs")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        for name, path in self.pages.items():
            target = self.out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self.convert(name, path.read_text()))
        assets = Path(__file__).parent / "assets"
        shutil.copytree(assets, self.out / "assets", dirs_exist_ok=True)

    def convert(self, name: str, text: str) -> str:
        """Return a page as the generator reads it."""
        out: list[str] = []
        columns: list[tuple[int, int]] = []  # of the open list items: where their text stands, and where it goes
        for _, line, block in split(self.relinked(name, text)):
            if block is not None:
                out.append(self.shift(self.fence(line), columns))
                continue
            m = ITEM.match(line)
            # As a code host sees it, no code block starts a list, and in a paragraph only a 1 does.
            inside = bool(out and out[-1].strip())
            if m and (columns or (len(m[1]) < 4 and not (inside and m[2][0].isdigit() and m[2][:-1] != "1"))):
                indent = len(m[1])
                while columns and indent < columns[-1][0]:
                    columns.pop()
                if not columns and out and out[-1].strip() and not ITEM.match(out[-1]):
                    out.append("")
                deep = 4 * len(columns)
                columns.append((indent + len(m[2]) + len(m[3]), deep + 4))
                out.append(" " * deep + m[2].replace(")", ".") + " " + line[m.end():])
                continue
            if line.strip() and columns:
                indent = len(line) - len(line.lstrip())
                lazy = bool(out) and bool(out[-1].strip())
                while columns and indent < columns[-1][0] and not (lazy and not line.startswith(("#", "|", "<"))):
                    columns.pop()
            out.append(self.shift(line, columns))
        return "\n".join(out) + "\n"

    @staticmethod
    def shift(line: str, columns: list[tuple[int, int]]) -> str:
        """Return a line of a list item with the indentation that the generator expects."""
        if not columns or not line.strip():
            return line
        source, target = columns[-1]
        indent = len(line) - len(line.lstrip())
        return " " * (target + max(0, indent - source)) + line.lstrip()

    @staticmethod
    def fence(line: str) -> str:
        """Drop the words behind the language of a fence."""
        m = FENCE.match(line)
        return f"{m[1]}{m[2]}{m[3].split()[0]}" if m and m[3].split() else line

    def relinked(self, name: str, text: str) -> str:
        """Return a page with other links, which may extend over two lines."""
        out: list[str] = []
        for inside, lines in groupby(split(text), lambda each: each[2] is not None):
            part = "\n".join(line for _, line, _ in lines)
            out.append(part if inside else self.links(name, part))
        return "\n".join(out)

    def links(self, name: str, text: str) -> str:
        """Point links at pages of the site, and turn links to other files into text."""
        source = self.pages[name].relative_to(self.root).as_posix()

        def replace(m: re.Match[str]) -> str:
            image, words, target = m[1], m[2], m[3]
            if re.match(r"[a-z]+:", target) or target.startswith("#"):
                return m[0]
            path, _, anchor = target.partition("#")
            found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            if image or (found.startswith("docs/") and not found.endswith(".md") and (self.root / found).is_file()):
                to = found.removeprefix("docs/")
            elif found in self.names or posixpath.join(found, "README.md") in self.names:
                to = self.names.get(found) or self.names[posixpath.join(found, "README.md")]
            elif (self.root / found).exists():
                return words  # the site has no sources
            else:
                return m[0]  # the check of the built site reports it
            relative = os.path.relpath(to, posixpath.dirname(name) or ".")
            return f"{image}[{words}]({relative}{'#' + anchor if anchor else ''}{m[4] or ''})"

        # Code spans stay as they are, unless they are in the text of a link.
        return SPAN_OR_LINK.sub(lambda m: LINK.sub(replace, m[0]) if m["link"] else m[0], text)
