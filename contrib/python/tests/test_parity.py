"""The table of Horovod's rules, in worlds of one to four ranks on this host."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

from tests_path import need_torch

need_torch()
ROOT = Path(__file__).resolve().parents[3]
GORUN = ROOT / "bin" / "gorun"
PROGRAM = ROOT / "contrib" / "python" / "tests" / "mp" / "test_parity.py"


class ParityTest(unittest.TestCase):
    def test_rules(self):
        if not GORUN.exists():
            self.skipTest(f"{GORUN} is not built: make build")
        tables = []
        for np in range(1, 5):
            command = [GORUN, "-np", str(np), "--no-tag-output", sys.executable, "-B", PROGRAM]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(ended.returncode, 0, f"{np} ranks\n{ended.stdout}{ended.stderr}")
            *table, end = ended.stdout.splitlines()
            self.assertRegex(end, rf"^\d+ rules, \d+ names, {np} ranks: ok$")
            self.assertEqual(int(re.match(r"\d+", end)[0]), len(table))
            tables.append(table)
        self.assertEqual(tables, tables[:1] * 4)
