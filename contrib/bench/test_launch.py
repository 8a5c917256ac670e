"""Tests of what the comparison of launches computes."""

import math
import unittest

import launch


class Test(unittest.TestCase):
    def test_table(self) -> None:
        times = {
            2: {launch.GORUN: [0.1, 0.3, 0.2], launch.SSH: [0.15, 0.05, 0.1]},
            64: {launch.GORUN: [1.0, math.inf, math.inf], launch.SSH: [1.0, 1.0, 1.0]},
        }
        self.assertEqual(
            launch.table(times),
            [
                "| ranks | gorun | plain ssh |",
                "|---:|---:|---:|",
                "| 2 | 200 (100–300) | 100 (50–150) |",
                "| 64 | failed (1000–failed) | 1000 (1000–1000) |",
                "",
                "Over plain ssh:",
                "",
                "| ranks | gorun | plain ssh |",
                "|---:|---:|---:|",
                "| 2 | 100 | 0 |",
                "| 64 | failed | 0 |",
            ],
        )


if __name__ == "__main__":
    unittest.main()
