"""Tests of what observed.py computes, reads and keeps, with jobs that it only pretends to start."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import observed  # noqa: E402
from observed import BLIND, KINDS, RECORDED, SHOWN  # noqa: E402

SAID = """gorun: metrics are at http://127.0.0.1:9400/metrics
gorun: the page of the job is at http://127.0.0.1:8080/#SECRET
"""


class Pages(unittest.TestCase):
    def test_addresses(self) -> None:
        found = observed.pages(SAID)
        self.assertEqual(found[0], observed.Page("127.0.0.1:9400", "/metrics"))
        self.assertEqual(found[1], observed.Page("127.0.0.1:8080", "/api/state", "SECRET"))
        with self.assertRaisesRegex(RuntimeError, "no addresses in: gorun: error"):
            observed.pages("gorun: error: the port is in use")

    def test_reading(self) -> None:
        asked: list[tuple[str, str | None]] = []
        twice = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers["Authorization"]))
                self.send_response(200 if self.headers["Authorization"] != "Bearer WRONG" else 401)
                self.end_headers()
                if len(asked) == 4:
                    twice.set()

            def log_message(self, format: str, *args: object) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            at = f"127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                with observed.reading([observed.Page(at, "/a"), observed.Page(at, "/b", "T")], 0.001):
                    self.assertTrue(twice.wait(20))
                with self.assertRaisesRegex(RuntimeError, "/c: status 401"):
                    with observed.reading([observed.Page(at, "/c", "WRONG")], 0.001):
                        pass
            finally:
                server.shutdown()
                thread.join()
        self.assertEqual(asked[:4], [("/a", None), ("/b", "Bearer T")] * 2)


class Rounds(unittest.TestCase):
    def round(self, n: int, same: bool = False, fails: bool = False) -> tuple[observed.Round, list[str]]:
        """Return a round of jobs that are not started, and what happened to them."""
        happened: list[str] = []

        class Job:
            def __init__(self, blind: bool, ranks: int) -> None:
                self.name = "blind" if blind else "seen"

            def warm_up(self) -> None:
                happened.append(f"warm up {self.name}")

            def turn(self, steps: int, shown: bool) -> tuple[float, float]:
                if fails:
                    raise RuntimeError("a job has ended")
                happened.append(self.name + ", shown" * shown)
                return len(happened), steps

            def end(self) -> None:
                happened.append(f"end {self.name}")

        args = argparse.Namespace(ranks=2, turns=2, steps=3, same=same)
        try:
            return observed.make_round(n, args, Job), happened  # type: ignore[arg-type]
        except RuntimeError:
            return {}, happened

    def test_turns(self) -> None:
        turns, happened = self.round(1)
        order = ["seen", "seen, shown", "blind"]
        self.assertEqual(happened[:2], ["warm up seen", "warm up blind"])
        self.assertEqual(happened[2:8], [*order, *reversed(order)])
        self.assertEqual(happened[8:], ["end seen", "end blind"])
        want = {BLIND: [(5, 3), (6, 3)], RECORDED: [(3, 3), (8, 3)], SHOWN: [(4, 3), (7, 3)]}
        self.assertEqual(turns, want)

    def test_order(self) -> None:
        for n in range(len(KINDS)):
            turns, _ = self.round(n)
            self.assertEqual(min(KINDS, key=lambda kind: turns[kind]), KINDS[n])

    def test_same(self) -> None:
        self.assertEqual(self.round(0, same=True)[1][2:5], ["blind", "blind", "blind, shown"])

    def test_all_end(self) -> None:
        self.assertEqual(self.round(0, fails=True)[1][2:], ["end blind", "end seen"])


class Figures(unittest.TestCase):
    def test_interval(self) -> None:
        middle, low, high = observed.interval([1.0] * 9 + [1.02] * 11)
        self.assertAlmostEqual(middle, 2.0)
        self.assertAlmostEqual(low, 0.0)
        self.assertAlmostEqual(high, 2.0)

    def test_report(self) -> None:
        shown = [(0.1, 1.0), (1.21, 4.0), (9.0, 5.0)]
        one = {BLIND: [(1.0, 2.0)] * 3, RECORDED: [(1.1, 2.0)] * 3, SHOWN: shown}
        lines = observed.report([one] * 20, 10)
        self.assertEqual(lines[0], "time of a step without: 100.00 ms")
        self.assertIn(f"time of a step {SHOWN}: 121.00 ms", lines)
        for what, than, more in ("time", RECORDED, 10), ("CPU time", BLIND, 100):
            interval = f"+{more}.00 % (95 % interval +{more}.00 to +{more}.00 %, 20 pairs)"
            self.assertIn(f"{what} {SHOWN}, against {than}: {interval}", lines)

    def test_kept(self) -> None:
        settings = {"ranks": 2, "steps": 26}
        with tempfile.TemporaryDirectory() as directory:
            path = str(Path(directory, "samples.json"))
            kept = observed.Kept(path, settings)
            one: observed.Round = {kind: [(1.0, 2.0)] for kind in KINDS}
            kept.add(one)
            again = observed.Kept(path, settings)
            again.add(one)
            self.assertEqual(len(observed.Kept(path, settings).rounds), 2)
            self.assertEqual(observed.report(again.rounds, 1), observed.report([one, one], 1))
            with self.assertRaisesRegex(SystemExit, "was measured with .*26.*, not .*27"):
                observed.Kept(path, {**settings, "steps": 27})
        with contextlib.redirect_stderr(io.StringIO()):
            observed.Kept("", settings).add(one)


if __name__ == "__main__":
    unittest.main()
