"""Open each page of the built site in headless Chromium, narrow and wide, and search in it.

    python browse.py [--pictures DIR] [PAGE ...]

A page may write no error to the console, break no picture, ask no other host for anything, and at 390 pixels not be
wider than the screen. The search must find something from http and from file addresses alike. With --pictures each
page is drawn as well, light and dark, for people to look at.
"""

import argparse
import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, Page, Request, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from faults import Faults
from pages import ROOT

SITE = ROOT / "build/site"
NARROW, WIDE = 390, 1400
WORD = "Elastic"  # what is searched for, a word of a page's title
# What a page must answer: pictures that did not load, and what sticks out at the right.
BROKEN = "() => [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.getAttribute('src'))"
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return null;
  const wide = [...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > width + 1);
  return (wide.length ? wide[0].tagName.toLowerCase() + ' ' + wide[0].textContent.trim().slice(0, 40) : 'the page');
}"""


def chromium() -> str | None:
    """Return the browser of this machine."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a directory on loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Browser:
    """Opens pages in one context, and notes what goes wrong."""

    def __init__(self, context: BrowserContext, base: str, faults: Faults) -> None:
        self.base, self.faults = base, faults
        self.page: Page = context.new_page()
        self.name = ""
        self.page.on("console", lambda m: self.fault(f"console: {m.text}") if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.fault(f"script: {e}"))
        self.page.on("request", self.requested)
        self.page.on("response", lambda r: self.fault(f"{r.url}: status {r.status}") if r.status >= 400 else None)
        self.page.on("requestfailed", self.failed)

    def fault(self, what: str) -> None:
        """Note a fault of the open page."""
        self.faults.add(self.name, what)

    def requested(self, request: Request) -> None:
        """Look where a request goes."""
        if not request.url.startswith((self.base, "data:", "blob:", "about:")):
            self.fault(f"asks another host for {request.url}")

    def failed(self, request: Request) -> None:
        """Look why a request failed. Leaving a page aborts what it still loads, which is no fault."""
        if request.failure != "net::ERR_ABORTED":
            self.fault(f"could not load {request.url}: {request.failure}")

    def open(self, name: str) -> None:
        """Open a page, and look at it at both widths."""
        self.name = name
        self.page.set_viewport_size({"width": NARROW, "height": 900})
        self.page.goto(self.base + name, wait_until="load")
        for width in (NARROW, WIDE):
            self.page.set_viewport_size({"width": width, "height": 900})
            for src in self.page.evaluate(BROKEN):
                self.fault(f"picture {src} is broken")
            if wide := self.page.evaluate(OVERFLOW):
                self.fault(f"wider than a screen of {width} pixels: {wide}")

    def search(self, word: str) -> None:
        """Search as a reader does; the result must be a link to a page."""
        self.name = f"search at {self.base}"
        self.page.goto(self.base + "index.html", wait_until="load")
        first = self.page.get_by_role("option").first
        try:
            self.page.locator(".md-search__button").click()
            self.page.get_by_role("combobox", name="Search").fill(word)
            first.wait_for()
        except PlaywrightError as e:
            self.fault(f"finds nothing for {word}: {e.message.splitlines()[0]}")
            return
        first.click()
        self.page.wait_for_load_state()
        if word.lower() not in self.page.inner_text("h1").lower():
            self.fault(f"the first result for {word} is {self.page.inner_text('h1')}")


def draw(browser: Chromium, base: str, names: list[str], to: Path) -> None:
    """Draw pages at both widths, light and dark."""
    for scheme in ("light", "dark"):
        page = browser.new_context(color_scheme=scheme).new_page()  # a context keeps the scheme of its first page
        for name in names:
            for width in (NARROW, WIDE):
                page.set_viewport_size({"width": width, "height": 1000})
                page.goto(base + name, wait_until="load")
                page.screenshot(path=to / f"{name.removesuffix('.html').replace('/', '_')}-{width}-{scheme}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pictures", type=Path, help="draw the pages, into this directory")
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("pages", nargs="*", help="of the site, such as guides/mpi.html; without any, all")
    args = parser.parse_args()
    if not chromium():
        print("documentation in Chromium: apt-get install chromium")  # make takes it for a skip
        sys.exit(3)
    names = args.pages or sorted(p.relative_to(args.site).as_posix() for p in args.site.rglob("*.html"))
    faults = Faults()
    with served(args.site) as base, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        look = Browser(browser.new_context(), base, faults)
        for name in names:
            look.open(name)
        look.search(WORD)
        Browser(browser.new_context(), f"{args.site.as_uri()}/", faults).search(WORD)
        if args.pictures:
            args.pictures.mkdir(parents=True, exist_ok=True)
            draw(browser, base, names, args.pictures)
        browser.close()
    for line in faults.lines():
        print(f"docs: error: {line}")
    if faults.places:
        sys.exit(f"docs: error: {len(faults.places)} faults in Chromium")
    print(f"docs: {len(names)} pages at {NARROW} and {WIDE} pixels, and the search, in Chromium")


if __name__ == "__main__":
    main()
