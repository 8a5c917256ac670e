"""Open the live pages of a job and of a cluster in headless Chromium, as users do: by the address that gorun prints.

    python test_live.py [--gorun PATH] [--axe FILE]

A page may write no error to the console, ask no other host for anything, and not be wider than the screen. It must keep
its token out of the address and in this tab alone. The page of a job must show its ranks, host and output, answer to
the keyboard, to its filter and to its button, and show 1,000 ranks; that of a cluster its slots and its queue. With the
script of axe-core (--axe) pages may break no rule of accessibility at both widths, light and dark.
"""

import argparse
import datetime
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Route, sync_playwright

import test_cluster as cluster
from faults import Faults
from pages import ROOT
from test_cluster import NARROW, WIDE, Browser

RANKS = 3
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
    print("step done", flush=True)
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
    env = os.environ | {"XDG_STATE_HOME": str(home)}
    with cluster.started(command, home / "log", env, r"the page of the job is at (http://\S+)") as address:
        yield address


def try_out(look: Browser, token: str, faults: Faults) -> None:
    """Use the page as a person does, by keyboard."""
    page = look.page
    page.locator("#strip rect.data").first.wait_for(state="attached")
    if page.locator("#strip svg").evaluate("e => e.viewBox.baseVal.width") != RANKS:
        faults.add(look.name, f"does not show {RANKS} ranks")
    if token in page.evaluate("location.href") or page.evaluate("document.cookie"):
        faults.add(look.name, "keeps its token in the address or in a cookie")
    for name in page.evaluate(NAMELESS):
        faults.add(look.name, f"{name} has no name")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    if not page.inner_text("#chosen").startswith("rank 1 on localhost: "):
        faults.add(look.name, f"by keyboard, chooses {page.inner_text('#chosen')}")
    page.get_by_role("button", name="Ask the ranks").press("Enter")
    page.locator("#answer details").first.wait_for()
    page.get_by_role("row", name="localhost").wait_for()
    page.locator("#output li").first.wait_for()
    page.get_by_label("Ranks", exact=True).fill("1")
    page.get_by_label("Search").fill("DONE")
    page.wait_for_function("[...document.querySelectorAll('#output li')].every(e => e.textContent === '1step done')")
    page.reload()  # the token stays in this tab
    page.locator("#strip rect.data").first.wait_for(state="attached")


def large(route: Route, hosts: int = 125, each: int = 8) -> None:
    """Answer as the server does for a job of 1,000 ranks, whose last host has the slowest edge."""
    now = time.time()
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    us = int((now % 10_000) * 1e6)

    def split(i: int) -> dict[str, int | str]:
        return {
            "elapsed_us": us,
            "steps": us // 500_000,
            "step_us": 480_000 + i,
            "data_us": us * (i % each) // (2 * each),
            "others_us": us // 20,
            "communication_us": us // 10,
            "hidden_us": us // 8,
            "operations": us // 1000,
            "activity": "computes",
            "for_us": 0,
        }

    ranks = [
        {"rank": i, "host": f"host{i // each + 1}", "pid": 4000 + i, "state": "runs", "rss": 3 << 29, "split": split(i)}
        for i in range(hosts * each)
    ]
    shown = [
        {
            "name": f"host{h + 1}",
            "next": f"host{(h + 1) % hosts + 1}",
            "epoch": 2,
            "sent_bytes": us * 40,
            "resent_bytes": 0,
            "renewed_streams": 0,
            "busy_us": us // 2 * (h + 1) // hosts,
            "busy_bytes": us * 25 * (h + 1) // hosts,
        }
        for h in range(hosts)
    ]

    def ago(seconds: int) -> str:
        return (at - datetime.timedelta(seconds=seconds)).isoformat()

    events = [
        {"at": ago(500), "kind": "epoch", "text": f"epoch 1 begins, with {hosts * each + each} ranks"},
        {"at": ago(400), "kind": "move", "text": "host3 is about to be moved: vMotion"},
        {"at": ago(390), "kind": "moved", "text": "host3 was moved: vMotion"},
        {"at": ago(300), "kind": "silent", "text": "host9 falls silent"},
        {"at": ago(270), "kind": "left", "text": "host9 is not in the job any more"},
        {"at": ago(268), "kind": "epoch", "text": f"epoch 2 begins, with {hosts * each} ranks"},
        {"at": ago(100), "kind": "stall", "text": 'allreduce "grad.7" waits for rank 12 on host2 for 60 s'},
    ]
    job = {
        "id": 7,
        "program": "python3 train.py",
        "ranks": len(ranks),
        "machine": "login1",
        "started": ago(600),
    }
    view = {"now": at.isoformat(), "job": job, "hosts": shown, "ranks": ranks, "events": events}
    route.fulfill(body=json.dumps(view), content_type="application/json")


def try_large(page: Page, address: str, name: str, faults: Faults) -> None:
    """Show a job of 1,000 ranks in place of the one that runs."""
    page.route("**/api/state", lambda route: large(route))
    page.goto(address, wait_until="load")
    page.locator("#ring path.slow").first.wait_for(state="attached")
    if not page.inner_text("#pace").startswith("host125 → host1 sets the pace: 50 %"):
        faults.add(name, f"names as the bottleneck {page.inner_text('#pace')}")
    if (columns := page.locator("#strip svg").evaluate("e => e.viewBox.baseVal.width")) != 200:  # noqa: PLR2004
        faults.add(name, f"draws 1,000 ranks in {columns} columns")
    for lane, kinds in {"silence": "silent", "moves": "move", "stalls": "stall", "worlds": "epoch"}.items():
        if not page.locator(f"#lanes rect.{kinds}").count():
            faults.add(name, f"shows no {lane} on the time line")


def check_access(page: Page, axe: str, name: str, faults: Faults) -> None:
    """Have axe-core look at an open page, at both widths."""
    for width in (NARROW, WIDE):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(axe)
        found = page.evaluate("axe.run({resultTypes: ['violations']})")
        for v in found["violations"]:
            faults.add(f"{name} at {width} pixels", f"axe: {v['id']}: {v['nodes'][0]['html'][:120]}")


class Kind(NamedTuple):
    """A page of gorun's: what it is of, and how it is tried out."""

    name: str
    run: Callable[[Path, Path], AbstractContextManager[str]]
    try_out: Callable[[Browser, str, Faults], None]
    try_large: Callable[[Page, str, str, Faults], None]


KINDS = (
    Kind("live page", job, try_out, try_large),
    Kind("cluster page", cluster.cluster, cluster.try_cluster, cluster.try_large),
)


def look_at(kind: Kind, browser: Chromium, args: argparse.Namespace, faults: Faults) -> None:
    """Try a page out, by itself and for what is large."""
    with tempfile.TemporaryDirectory() as home, kind.run(args.gorun, Path(home)) as address:
        base, token = address.split("#")
        look = Browser(browser.new_context(), base, faults)
        look.open(f"#{token}")
        look.name = kind.name
        try:
            kind.try_out(look, token, faults)
            for scheme in ("light", "dark"):
                many = Browser(browser.new_context(color_scheme=scheme), base, faults)
                many.name = f"{kind.name} of many"
                kind.try_large(many.page, address, many.name, faults)
                if args.axe:
                    check_access(many.page, args.axe.read_text(), f"{many.name}, {scheme},", faults)
                many.page.close()
        except PlaywrightError as e:
            faults.add(look.name, e.message.splitlines()[0])
    for line in faults.lines():
        print(f"live: error: {line.replace(token, '…')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gorun", type=Path, default=ROOT / "bin/gorun")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    args = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        print("Skipped on this machine: live pages in Chromium: apt-get install chromium")
        sys.exit(1 if os.environ.get("CI") else 0)
    found = 0
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for kind in KINDS:
            faults = Faults()
            look_at(kind, browser, args, faults)
            found += len(faults.places)
        browser.close()
    if found:
        sys.exit(f"live: error: {found} faults in Chromium")
    print(f"live: the pages of a job and a cluster at {NARROW} and {WIDE} pixels, by keyboard, in Chromium")


if __name__ == "__main__":
    main()
