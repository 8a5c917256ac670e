from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import growth  # noqa: E402


class Growth(unittest.TestCase):
    def test_status(self) -> None:
        sizes = growth.status("Name:\tgorun\nVmHWM:\t   2048 kB\nRssAnon:\t 12 kB\nThreads:\t7\n")
        self.assertEqual(sizes, {"VmHWM": 2 << 20, "RssAnon": 12 << 10})

    def test_below(self) -> None:
        self.assertEqual(growth.below(5, {6: 5, 7: 6, 8: 1, 9: 7, 5: 1}), [6, 7, 9])
        self.assertEqual(growth.below(9, {6: 5}), [])

    def test_seconds(self) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        stat = f"7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 {3 * ticks} {ticks} 0 0 20 0 1 0 5 0 0"
        self.assertEqual(growth.seconds_of(stat), 4.0)

    def test_complaints(self) -> None:
        def rows(*cost: float) -> list[growth.Row]:
            return [
                growth.Row((1 << 20) << (4 * k), ns * ((1 << 20) << (4 * k)) / 1e3, 0.0)
                for k, ns in enumerate(cost)
            ]

        # 1, 16, 256 MiB and 4 GiB: what fits into caches may be cheap, the rest is not expensive by it.
        self.assertEqual(growth.complaints(rows(0.1, 0.1, 1.0, 1.4), 10 << 20), [])
        self.assertEqual(growth.complaints(rows(1.9, 1.4, 1.4, 1.0), 10 << 20), [])
        for given, own, want in (
            (rows(0.1, 0.1, 1.0, 1.6), 0, r"^a byte of 4,096 MiB costs 1\.6 times"),
            (rows(2.1, 1.0, 1.0, 1.0), 0, r"^a byte of 1 MiB costs 2\.1 times"),
            (rows(1.0, 1.0), 200 << 20, r"^a daemon had 200 MiB of its own"),
        ):
            self.assertRegex("\n".join(growth.complaints(given, own)), want)

    def test_parents(self) -> None:
        with subprocess.Popen(["sleep", "60"]) as child:
            try:
                family = growth.parents()
                self.assertIn(child.pid, growth.below(family[child.pid], family))
            finally:
                child.kill()


if __name__ == "__main__":
    unittest.main()
