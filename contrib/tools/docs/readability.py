"""How long sentences are, and README's size."""

import re
from pathlib import Path

from faults import Faults
from pages import prose

README_BYTES = 8192
MEAN = 18  # words in a sentence
README_LONGEST, PAGE_LONGEST = 25, 45
# Pages that people write for people; a reference has no sentences worth measuring.
MEASURED = ("docs/index.md", "docs/quickstart.md", "docs/install.md", "docs/security.md", "docs/guides/",
            "docs/migrate/", "CONTRIBUTING.md", "SECURITY.md")
NO_PROSE = ("#", "|", "    ", "<", "!!!")


def sentences(text: str) -> list[str]:
    """Return the sentences of a page's paragraphs and list items, without tables, headings and code."""
    found: list[str] = []
    paragraph: list[str] = []

    def end() -> None:
        whole = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", " ".join(paragraph))
        whole = re.sub(r"`[^`]*`", "Code", whole)
        paragraph.clear()
        for sentence in re.split(r"(?<=[.!?:])[)\"*_]*\s+(?=[\"(*_]*[A-Z0-9])", whole):
            words = re.sub(r"[*_|>#]", " ", sentence).split()
            if len(words) > 2:
                found.append(" ".join(words))

    for line in prose(text).split("\n"):
        item = re.match(r"\s*(?:[-*+]|\d+[.)]) +(.*)", line)
        if item or not line.strip() or line.startswith(NO_PROSE):
            end()
        if item:
            paragraph.append(item[1])
        elif line.strip() and not line.startswith(NO_PROSE):
            paragraph.append(line.strip())
    end()
    return found


def check(root: Path, texts: dict[str, str], faults: Faults) -> str:
    """Hold README and the pages that people write to the limits above, and return README's figures."""
    figures = "README.md has no sentences"
    size = len((root / "README.md").read_bytes())
    if size > README_BYTES:
        faults.add("README.md", f"{size} bytes, and it may have {README_BYTES}")
    for name, text in texts.items():
        readme = name == "README.md"
        lengths = sorted((len(s.split()), s) for s in sentences(text))
        if not lengths or not (readme or name.startswith(MEASURED)):
            continue
        mean = sum(n for n, _ in lengths) / len(lengths)
        if mean > MEAN:
            faults.add(name, f"sentences have {mean:.1f} words in the mean, and may have {MEAN}")
        longest = README_LONGEST if readme else PAGE_LONGEST
        for n, sentence in lengths:
            if n > longest:
                faults.add(name, f"a sentence of {n} words, and it may have {longest}: {sentence}")
        if readme:
            figures = (f"README.md: {size} bytes, {len(lengths)} sentences, {mean:.1f} words in the mean, "
                       f"{lengths[-1][0]} in the longest")
    return figures
