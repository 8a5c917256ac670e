"""Draw lab hosts, and the live page and the board of a job on them: lab.svg, live.png and board.svg of docs/pictures.

    python recorded.py --lab LAB --python PYTHON [--gorun PATH] [--hosts FILE] [--picture FILE] [--board FILE]

Four lab hosts train with eight ranks, and the link of host3 is slow. gorun topo measures and draws them before. What
the job's server answers is recorded for some seconds, and its metrics with it. The page is drawn from the record, so
that it looks the same however long Chromium takes. contrib/grafana draws the board.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, Route, sync_playwright

from browse import chromium, served
from pages import ROOT

PAGE = ROOT / "launcher/web/page"  # launcher/web puts its parts together
HOSTS, SLOW, MBIT = 4, 3, 150
SECONDS = 15  # that are recorded for the page
SCRAPES = 60  # one each second, for the board
ADDRESSES = (r"the page of the job is at (http://\S+)", r"metrics are at (http://\S+)")
LIMIT = 60  # seconds that a job may take to begin
PROGRAM = """
import time
import numpy as np
import gorun
import gorun.numpy as hvd

def batches(rank):
    while True:
        time.sleep(0.02 * (1 + rank % 2))
        yield np.ones(1 << 20, np.float32)

hvd.init()
for i, batch in enumerate(gorun.loading(batches(hvd.rank()))):
    time.sleep(0.1)
    hvd.allreduce(batch, name="gradients")
    gorun.step()
    print("step", i, "loss", round(2 / (1 + i), 3), flush=True)
"""
ASK = """
import sys, time, urllib.request
base, token = sys.argv[1].split("#")
for i in range(int(sys.argv[4])):
    r = urllib.request.Request(base + "api/state", headers={"Authorization": "Bearer " + token})
    if i < int(sys.argv[3]):
        print(urllib.request.urlopen(r, timeout=10).read().decode().strip(), flush=True)
    now = str(int(time.time() * 1000))
    with open("scrapes/" + now, "wb") as file:
        file.write(urllib.request.urlopen(sys.argv[2], timeout=10).read())
    time.sleep(1)
"""


@contextmanager
def hosts(lab: list[str]) -> Iterator[None]:
    """Make the lab hosts, the link of one of them slow."""
    subprocess.run([*lab, "up", str(HOSTS)], cwd=ROOT, check=True)
    try:
        subprocess.run([*lab, "link", "--mbit", str(MBIT), str(SLOW)], cwd=ROOT, check=True)
        yield
    finally:
        subprocess.run([*lab, "down"], cwd=ROOT, check=True)


def record(lab: list[str], gorun: Path, python: str, home: Path) -> list[str]:
    """Run a job, return the states that its server answers, and leave its metrics in home/scrapes."""
    (home / "scrapes").mkdir()
    (home / "train.py").write_text(PROGRAM)
    at = ",".join(f"host{i + 1}:2" for i in range(HOSTS))
    command = [*lab, "run", str(gorun), "-np", str(2 * HOSTS), "-H", at, "--web", "127.0.0.1:0"]
    command += ["--metrics", "127.0.0.1:0", python, "train.py"]
    log = home / "log"
    with log.open("w") as out, subprocess.Popen(command, cwd=home, stdout=out, stderr=out) as job:
        try:
            until = time.monotonic() + LIMIT
            while len(found := [m for at in ADDRESSES if (m := re.search(at, log.read_text()))]) < len(ADDRESSES):
                if time.monotonic() > until or job.poll() is not None:
                    raise SystemExit(f"recorded: error: the job printed no addresses:\n{log.read_text()}")
                time.sleep(0.1)
            ask = [*lab, "run", python, "-c", ASK, found[0][1], found[1][1], str(SECONDS), str(SCRAPES)]
            return subprocess.run(ask, cwd=home, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        finally:
            job.terminate()
            job.wait(LIMIT)


def draw_board(scrapes: Path, to: Path) -> None:
    """Have Prometheus answer the queries of the board by the scrapes, and draw its panels."""
    env = {**os.environ, "GOWORK": "off", "GORUN_SCRAPES": str(scrapes), "GORUN_PICTURE": str(to.resolve())}
    command = ["go", "test", "-count=1", "-tags", "picture", "-run", "^TestDraw$", "."]
    subprocess.run(command, cwd=ROOT / "contrib/grafana", env=env, check=True)


def draw(page: Page, address: str, states: list[str], to: Path) -> None:
    """Draw the page, down to its ring, as it is at the end of the record."""
    left = list(states)

    def answer(route: Route) -> None:
        body = '{"next": 0, "lines": []}'
        if "api/state" in route.request.url:
            body = left.pop(0) if len(left) > 1 else left[0]
        route.fulfill(body=body, content_type="application/json")

    whole = (PAGE / "head.html").read_text().replace("PAGE", "job") + (PAGE / "job.html").read_text()
    page.route(address, lambda route: route.fulfill(body=whole, content_type="text/html"))
    page.route("**/api/*", answer)
    page.goto(address + "#token", wait_until="load")
    last = json.loads(states[-1])["job"]["id"]
    page.wait_for_function(f"document.title.startsWith('job {last}')")
    page.wait_for_timeout(1200 * len(states))
    end = page.locator("section", has=page.locator("#ring")).bounding_box()
    width = page.evaluate("document.documentElement.clientWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": end["y"] + end["height"] + 10}
    page.screenshot(path=to, full_page=True, clip=clip)
    page.unroute_all(behavior="ignoreErrors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lab", required=True, help="the program contrib/lab/cmd/lab")
    parser.add_argument("--python", required=True, help="a Python with NumPy")
    parser.add_argument("--gorun", type=Path, default=ROOT / "bin/gorun")
    parser.add_argument("--hosts", type=Path, default=ROOT / "docs/pictures/lab.svg")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs/pictures/live.png")
    parser.add_argument("--board", type=Path, default=ROOT / "docs/pictures/board.svg")
    args = parser.parse_args()
    home = ROOT / "build" / f"recorded-{os.getpid()}"
    home.mkdir(parents=True)
    lab = [str(Path(args.lab).resolve()), "--name", home.name]
    try:
        with hosts(lab):
            at = ",".join(f"host{i + 1}" for i in range(HOSTS))
            topo = [str(args.gorun), "topo", "-H", at, "--measure", "--svg", str(args.hosts.resolve())]
            subprocess.run([*lab, "run", *topo], cwd=ROOT, check=True)
            states = record(lab, args.gorun, args.python, home)
        draw_board(home / "scrapes", args.board)
    finally:
        shutil.rmtree(home)
    with served(PAGE) as address, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        draw(page, address, states, args.picture)
        browser.close()
    print(f"recorded: {args.hosts}, {args.picture}, {args.board}")


if __name__ == "__main__":
    main()
