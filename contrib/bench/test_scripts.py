"""Tests of what the comparison of scripts reads and computes."""

import tempfile
import unittest
from pathlib import Path

import scripts
from scripts import Outcome


class Test(unittest.TestCase):
    def setUp(self) -> None:
        self.scripts = {script.name: script for script in scripts.scripts(quick=True)}

    def test_reads_what_scripts_say(self) -> None:
        for name, said, want in (
            (
                "digits",
                "epoch  1  x  10 images/s\nepoch  2  x  1,200 images/s\nepoch  3  x  1,400 images/s\n",
                1300,
            ),
            ("synthetic ResNet", "Img/sec per CPU: 3.0 +-0.1\nTotal img/sec on 2 CPU(s): 6.1 +-0.2\n", 6.1),
            ("elastic synthetic", "Total samples/sec on 4 rank(s): 812.5\n", 812.5),
            ("step of ResNet-50's gradients", '{"rows": [{"p50_us": 25000.0}]}', 25),
        ):
            with self.subTest(name):
                self.assertEqual(scripts.reached(self.scripts[name], said), want)
                self.assertIsNone(scripts.reached(self.scripts[name], "Traceback"))

    def test_ratio_is_above_one_where_gorun_is_faster(self) -> None:
        self.assertEqual(scripts.ratio(self.scripts["digits"], ours=20, theirs=10), 2)
        self.assertEqual(
            scripts.ratio(self.scripts["step of ResNet-50's gradients"], ours=20, theirs=10), 0.5
        )

    def test_row_has_medians_extremes_and_ratios_of_rounds(self) -> None:
        rounds = [
            (Outcome(20, 1), Outcome(10, 2)),
            (Outcome(30, 3), Outcome(10, 4)),
            (Outcome(40, 9), Outcome(40, 9)),
        ]
        self.assertEqual(
            scripts.row(self.scripts["digits"], 2, rounds),
            "| digits | 2 | images/s | 30.0 (20.0–40.0) | 10.0 (10.0–40.0) | 3.00 (1.00–3.00) | 3.0 | 4.0 |",
        )

    def test_both_run_the_same_program(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            for script in self.scripts.values():
                ours = scripts.under_gorun(script, 4, "/venv/bin/python", Path(name))
                theirs = scripts.under_horovod(script, 4, "/venv/bin/python", Path(name))
                self.assertEqual(theirs[0], "/venv/bin/horovodrun")
                self.assertEqual(ours[-len(script.words) :], theirs[-len(script.words) :])
                self.assertEqual("--min-np" in ours, script.elastic)
                self.assertTrue(Path(script.words[0]).is_file(), script.words[0])


if __name__ == "__main__":
    unittest.main()
