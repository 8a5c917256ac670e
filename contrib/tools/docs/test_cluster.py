"""The page of a cluster, for test_live.py: a resident daemon, a job that runs, one that waits; and a large cluster."""

import datetime
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Request, Route

from faults import Faults

NARROW, WIDE = 390, 1400
# What a page must answer: pictures that did not load, and what sticks out at the right.
BROKEN = "() => [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.getAttribute('src'))"
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return null;
  const wide = [...document.querySelectorAll('article *')].filter(e => e.getBoundingClientRect().right > width + 1);
  return (wide.length ? wide[0].tagName.toLowerCase() + ' ' + wide[0].textContent.trim().slice(0, 40) : 'the page');
}"""


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


SLOTS, RANKS = 3, 2
LIMIT = 60  # seconds that a program may take to start, and to end
PROGRAM = "import time; time.sleep(600)"


@contextmanager
def started(command: list[str], log: Path, env: dict[str, str], wanted: str) -> Iterator[str]:
    """Run a program until the end, and return what it prints that matches a pattern."""
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as running:  # noqa: S603
        try:
            until = time.monotonic() + LIMIT
            while not (found := re.search(wanted, log.read_text())):
                if time.monotonic() > until or running.poll() is not None:
                    sys.exit(f"live: error: {' '.join(command)} printed no {wanted}:\n{log.read_text()}")
                time.sleep(0.1)
            yield found[1]
        finally:
            running.terminate()
            running.wait(LIMIT)


def free_port() -> int:
    """Return a port that is free, and the next one too, where gossip listens."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@contextmanager
def cluster(gorun: Path, home: Path) -> Iterator[str]:
    """Run a resident daemon with two jobs, of which one waits, and return the address of the page."""
    key = home / "cluster.key"
    key.touch(0o600)
    key.write_text(secrets.token_hex(32))
    at = f"127.0.0.1:{free_port()}"
    env = os.environ | {"XDG_STATE_HOME": str(home), "GORUN_CLUSTER_KEY_FILE": str(key)}
    daemon = [str(gorun), "worker", "--cluster-key-file", str(key), "--listen", at, "--name", "host1", "--allow-root"]
    asking = {**env, "GORUN_CLUSTER": at}
    job = [str(gorun), "-v", "-np", str(RANKS), sys.executable, "-c", PROGRAM]
    with ExitStack() as all_of:
        all_of.enter_context(started([*daemon, "--slots", str(SLOTS)], home / "worker.log", env, "(takes jobs)"))
        all_of.enter_context(started(job, home / "job.log", asking, "(epoch 1)"))
        all_of.enter_context(started(job, home / "waiting.log", asking, "(the job waits)"))
        page = [str(gorun), "web", "--cluster", at]
        yield all_of.enter_context(started(page, home / "web.log", env, r"(http://\S+)"))


def try_cluster(look: Browser, token: str, faults: Faults) -> None:
    """Read the page of the cluster."""
    page = look.page
    page.get_by_role("row", name=f"host1 {RANKS} of {SLOTS}").wait_for()
    page.get_by_role("row", name="waits for slots").wait_for()
    if not page.inner_text("#summary").startswith(f"1 host · {RANKS} of {SLOTS} slots in use · 1 job · 1 waiting"):
        faults.add(look.name, f"sums up: {page.inner_text('#summary')}")
    if token in page.evaluate("location.href") or page.evaluate("document.cookie"):
        faults.add(look.name, "keeps its token in the address or in a cookie")


def large(route: Route, hosts: int = 64, jobs: int = 40) -> None:
    """Answer as the server does for a cluster of many hosts, with a queue."""
    now = datetime.datetime.now(datetime.UTC)
    members = [
        {
            "host": f"host{i + 1}", "address": f"10.77.0.{i + 1}:7575", "slots": 8, "used": 8 if i < 60 else i % 8,
            "draining": i == 3, "version": "1.0.0",
        }
        for i in range(hosts)
    ]  # fmt: skip
    queue = [
        {
            "user": f"user{i % 5}", "program": f"python3 train_{i}.py --epochs 90", "ranks": 16,
            "seconds": 40 * (jobs - i), "state": "running" if i < 30 else "waiting",
            "hosts": [{"host": f"host{2 * i + k + 1}", "slots": 8} for k in range(2)] if i < 30 else [],
        }
        for i in range(jobs)
    ]  # fmt: skip
    detached = [
        {
            "host": "host1", "id": i, "name": "", "program": "python3 train.py", "ranks": 16,
            "started": (now - datetime.timedelta(hours=9 - i)).isoformat(),
            "state": ("running", "ended", "ended")[i % 3],
            "code": i % 2, "why": "rank 3 on host2 exited" if i % 2 else "",
        }
        for i in range(8)
    ]  # fmt: skip
    view = {"now": now.isoformat(), "cluster": {"members": members, "jobs": queue, "detached": detached}}
    route.fulfill(body=json.dumps(view), content_type="application/json")


def try_large(page: Page, address: str, name: str, faults: Faults) -> None:
    """Show a large cluster in place of the one that runs."""
    page.route("**/api/cluster", lambda route: large(route))
    page.goto(address, wait_until="load")
    page.get_by_role("row", name="host64").first.wait_for()
    rows = page.locator("#queue tr").count()
    if rows != 40:  # noqa: PLR2004
        faults.add(name, f"shows {rows} of 40 jobs")
