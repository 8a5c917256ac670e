"""Open the live page of a job in headless Chromium, as users do: by the address that gorun prints.

    python live.py [--gorun PATH] [--pictures DIR]

The page may write no error to the console, ask no other host for anything, and not be wider than the screen. It must
show the ranks and the host of the job, answer to the keyboard and to its button, and keep its token out of the address.
With --pictures it is drawn as well, light and dark, for people to look at.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

from browse import NARROW, WIDE, Browser, chromium
from faults import Faults
from pages import ROOT

RANKS = 3
LIMIT = 60  # seconds that a job may take to print its address, and to end
# Each rank takes steps until it is stopped, and loads longer than the others by its number.
PROGRAM = """
import os, time
import gorun
from gorun import basics
from gorun.constants import BARRIER

def batches(rank):
    while True:
        time.sleep(0.02 * (1 + rank))
        yield 1

basics.init()
for batch in gorun.loading(batches(basics.rank())):
    time.sleep(0.02)
    s = basics.world().session
    s.wait(s.submit(BARRIER, "step", 0, (), None, None))
    gorun.step()
"""
# Names of what a screen reader would read out as nothing.
NAMELESS = """() => [...document.querySelectorAll('button, section, [tabindex="0"]')].filter(e =>
  !e.textContent.trim() && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby'))
  .map(e => e.id || e.tagName)"""


@contextmanager
def job(gorun: Path, home: Path) -> Iterator[str]:
    """Run a job with a page, and return the page's address."""
    program = home / "train.py"
    program.write_text(PROGRAM)
    command = [str(gorun), "-np", str(RANKS), "--web", ":0", sys.executable, str(program)]
    log = home / "log"
    env = os.environ | {"XDG_STATE_HOME": str(home)}
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as running:  # noqa: S603
        try:
            until = time.monotonic() + LIMIT
            while not (found := re.search(r"the page of the job is at (http://\S+)", log.read_text())):
                if time.monotonic() > until or running.poll() is not None:
                    sys.exit(f"live: error: the job printed no address:\n{log.read_text()}")
                time.sleep(0.1)
            yield found[1]
        finally:
            running.terminate()
            running.wait(LIMIT)


def try_out(look: Browser, faults: Faults) -> None:
    """Use the page as a person does, by keyboard."""
    page = look.page
    page.locator("#strip rect.data").first.wait_for(state="attached")
    if page.locator("#strip svg").evaluate("e => e.viewBox.baseVal.width") != RANKS:
        faults.add(look.name, f"does not show {RANKS} ranks")
    if page.evaluate("location.href + document.cookie").count("token") or page.evaluate("document.cookie"):
        faults.add(look.name, "shows its token to scripts")
    for name in page.evaluate(NAMELESS):
        faults.add(look.name, f"{name} has no name")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    if not page.inner_text("#chosen").startswith("rank 1 on localhost: "):
        faults.add(look.name, f"by keyboard, chooses {page.inner_text('#chosen')}")
    page.get_by_role("button", name="Ask the ranks").press("Enter")
    page.locator("#answer details").first.wait_for()
    page.get_by_role("row", name="localhost").wait_for()


def draw(browser: Chromium, address: str, to: Path) -> None:
    """Draw the page at both widths, light and dark."""
    for scheme in ("light", "dark"):
        page = browser.new_context(color_scheme=scheme).new_page()
        for width in (NARROW, WIDE):
            page.set_viewport_size({"width": width, "height": 1000})
            page.goto(address, wait_until="load")
            page.wait_for_timeout(5000)
            page.screenshot(path=to / f"live-{width}-{scheme}.png", full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gorun", type=Path, default=ROOT / "bin/gorun")
    parser.add_argument("--pictures", type=Path, help="draw the page, into this directory")
    args = parser.parse_args()
    if not chromium():
        print("live page in Chromium: apt-get install chromium")  # make takes it for a skip
        sys.exit(3)
    faults = Faults()
    with tempfile.TemporaryDirectory() as home, sync_playwright() as p, job(args.gorun, Path(home)) as address:
        browser = p.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        base, token = address.split("?")
        look = Browser(browser.new_context(), base, faults)
        look.open(f"?{token}")
        look.name = "live page"
        try:
            try_out(look, faults)
        except PlaywrightError as e:
            faults.add(look.name, e.message.splitlines()[0])
        if args.pictures:
            args.pictures.mkdir(parents=True, exist_ok=True)
            draw(browser, address, args.pictures)
        browser.close()
    for line in faults.lines():
        print(f"live: error: {line.replace(token, 'token=…')}")
    if faults.places:
        sys.exit(f"live: error: {len(faults.places)} faults in Chromium")
    print(f"live: the page of a job at {NARROW} and {WIDE} pixels, by keyboard, in Chromium")


if __name__ == "__main__":
    main()
