"""The built site: links, anchors, the navigation, markup that was not understood, resources of other hosts."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from faults import Faults
from pages import pages

# What CSS and pictures load from elsewhere.
FOREIGN = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"']|\b(?:href|src)=\")((?:https?:)?//[^)\"'\s]+)")
MARKDOWN = re.compile(r"```.*|\]\([^)]+\)|^\s*(?:[-*+]|\d+\.) .*|^\|.*\|$|\*\*\w.*", re.M)


class Document(HTMLParser):
    """What the check of the site reads of a built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.leftovers: list[str] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take ids, links and resources."""
        a = dict(attrs)
        if a.get("id"):
            self.ids.add(a["id"] or "")
        if tag == "a" and a.get("href"):
            self.links.append(a["href"] or "")
        elif tag == "link" and a.get("rel") in ("canonical", "next", "prev", "alternate"):
            pass
        else:
            self.resources += [a[name] or "" for name in ("src", "href", "srcset", "data", "poster") if a.get(name)]
        if tag in ("pre", "code", "script", "style", "title", "h1", "h2", "h3", "nav"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave code."""
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        """Look for Markdown that the generator took for text."""
        if not self.inside:
            self.leftovers += MARKDOWN.findall(data)


class Site:
    """The built site."""

    def __init__(self, root: Path, faults: Faults) -> None:
        self.root, self.site, self.faults = root, root / "build/site", faults
        self.documents = {path: Document(path.read_text()) for path in sorted(self.site.rglob("*.html"))}

    def check(self) -> None:
        """Check every page of the site."""
        if not self.documents:
            self.faults.add("build/site", "it has no pages; make docs-site builds it")
        for path, document in self.documents.items():
            name = path.relative_to(self.root).as_posix()
            for link in document.links:
                self.link(name, path, link)
            for resource in document.resources:
                if urlsplit(resource).netloc:
                    self.faults.add(name, f"loads {resource} from another host")
                elif not resource.startswith(("data:", "#")) and not self.target(path, resource).exists():
                    self.faults.add(name, f"loads {resource}, which does not exist")
            for text in document.leftovers:
                self.faults.add(name, f"shows Markdown: {text.strip()[:80]}")
        for path in (p for p in self.site.rglob("*") if p.suffix in (".css", ".svg")):
            for url in FOREIGN.findall(path.read_text()):
                self.faults.add(path.relative_to(self.root).as_posix(), f"loads {url} from another host")
        self.navigation()

    def target(self, page: Path, link: str) -> Path:
        """Return the file that a link of a page leads to."""
        path = unquote(urlsplit(link).path)
        base = self.site if path.startswith("/") or page.name == "404.html" else page.parent
        to = (base / path.lstrip("/")).resolve() if path else page
        return to / "index.html" if to.is_dir() else to

    def link(self, name: str, page: Path, link: str) -> None:
        """Check one link."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return
        to = self.target(page, link)
        if not to.exists():
            self.faults.add(name, f"link to {link}, which does not exist")
        elif parts.fragment and to in self.documents and unquote(parts.fragment) not in self.documents[to].ids:
            self.faults.add(name, f"link to {link}: no such anchor")

    def navigation(self) -> None:
        """Check that the navigation has every page once, and nothing else. A page of their own lists the decisions."""
        config = re.sub(r"!!python/\S+", "", (self.root / "mkdocs.yml").read_text())
        listed = list(entries(yaml.safe_load(config)["nav"]))
        have = set(pages(self.root))
        for name in sorted(set(listed) - have):
            self.faults.add("mkdocs.yml", f"the navigation has {name}, which is no page")
        for name in sorted(n for n in have - set(listed) if not re.match(r"decisions/\d", n)):
            self.faults.add("mkdocs.yml", f"the navigation lacks {name}")
        for name in sorted({n for n in listed if listed.count(n) > 1}):
            self.faults.add("mkdocs.yml", f"the navigation has {name} twice")
        records = self.root / "docs/decisions/README.md"
        for name in sorted(n for n in have if re.match(r"decisions/\d", n)):
            if f"({name.split('/')[1]})" not in records.read_text():
                self.faults.add("docs/decisions/README.md", f"its table lacks {name}")


def entries(nav: list) -> Iterator[str]:
    """Yield the pages of a navigation."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, str):
                yield value
            else:
                yield from entries(value)
