from __future__ import annotations

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

    def test_parents(self) -> None:
        with subprocess.Popen(["sleep", "60"]) as child:
            try:
                family = growth.parents()
                self.assertIn(child.pid, growth.below(family[child.pid], family))
            finally:
                child.kill()


if __name__ == "__main__":
    unittest.main()
