"""Tests of what the comparison computes; the programs it runs check their own results."""

import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Callable
from unittest import mock

import peers
import programs
import running
from programs import Program, Setting, Sizes


class Test(unittest.TestCase):
    def test_medians(self) -> None:
        runs = [{4: {"p50_us": p50, "p99_us": 10 * p50, "wrong": 0}} for p50 in (9.0, 1.0, 2.0)]
        self.assertEqual(peers.medians(runs), {4: {"p50_us": 2.0, "low": 1.0, "high": 9.0}})

    def test_table(self) -> None:
        results = {
            "gorun": {65536: {"p50_us": 20.0, "low": 18.0, "high": 1500.0}},
            "torch gloo": {65536: {"p50_us": 50.0, "low": 1.0, "high": 70.0}},
        }
        lines = peers.table(Setting("1 host", 2), "gorun", results, {65536: 5.0})
        self.assertEqual(
            lines[2], "| size | gorun (spread) | limit | of the limit | torch gloo | torch gloo / gorun |"
        )
        self.assertEqual(lines[4], "| 64 KiB | 20.0 (18.0–1,500) | 5.0 | 25 % | 50.0 | 2.50 |")

    def test_what_hangs_or_fails_is_a_cell_of_the_table(self) -> None:
        row = '{"rows": [{"size": 4, "p50_us": 2.0, "wrong": 0}]}'
        scripts = {
            "gorun": f"echo '{row}'",
            "stock Horovod": f"echo '[0]<stdout>:{row}'",
            "hangs": "trap '' TERM; sleep 60 & wait; sleep 60",
            "fails": "exit 3",
            "lies": f"echo '{row}'".replace('"wrong": 0', '"wrong": 1'),
        }
        runners = [
            Program(name, "", lambda *_, script=script: ["sh", "-c", script])
            for name, script in scripts.items()
        ]
        setting = Setting("1 host", 2)
        since = time.monotonic()
        with mock.patch.object(running, "GRACE", 0.2), mock.patch("sys.stderr"):
            results, failures = peers.compare(runners, setting, Sizes(4, 4, 4), 1, 0.1, 0.5)
        self.assertLess(time.monotonic() - since, 20)
        self.assertEqual(
            failures,
            [
                "hangs failed in round 1 of 1: no end after 0.5 s.",
                "fails failed in round 1 of 1: exit status 3.",
                "lies failed in round 1 of 1: 1 elements are wrong.",
            ],
        )
        line = peers.table(setting, "gorun", results)[4]
        self.assertEqual(line, "| 4 B | 2.0 (2.0–2.0) | 2.0 | 1.00 | failed |  | failed |  | failed |  |")

    def test_what_was_started_ends_with_whatever_ends_the_program(self) -> None:
        for number in (*running.SIGNALS, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as directory:
                cleaned, pid = Path(directory, "cleaned"), Path(directory, "pid")
                spins = f"echo $$ >{pid}.new; mv {pid}.new {pid}; while :; do :; done"
                program = (
                    "import pathlib, running\n"
                    "def main():\n"
                    f"    try:\n        running.run(['sh', '-c', {spins!r}], None, '/')\n"
                    f"    finally:\n        pathlib.Path({str(cleaned)!r}).touch()\n"
                    "running.guard(main)"
                )
                bench = subprocess.Popen([sys.executable, "-B", "-c", program], cwd=programs.HERE)
                self.wait(pid.exists)
                bench.send_signal(number)
                self.assertEqual(bench.wait(20), -9 if number == signal.SIGKILL else 128 + number)
                self.wait(cleaned.exists)
                self.wait(lambda pid=pid: not Path("/proc", pid.read_text().strip()).exists())

    def test_a_signal_amid_a_start(self) -> None:
        """A signal that comes while a program starts ends that program too."""
        with tempfile.TemporaryDirectory() as directory:
            pid = Path(directory, "pid")
            program = (
                "import os, pathlib, running, signal, subprocess\n"
                "class Slow(subprocess.Popen):\n"
                "    def __init__(self, *args, **kwargs):\n"
                "        super().__init__(*args, **kwargs)\n"
                f"        pathlib.Path({str(pid)!r}).write_text(str(self.pid))\n"
                "        os.kill(os.getpid(), signal.SIGTERM)\n"
                "subprocess.Popen = Slow\n"
                "running.end_on_signals()\n"
                "running.run(['sleep', '60'], None, '/')"
            )
            bench = subprocess.run([sys.executable, "-B", "-c", program], cwd=programs.HERE, timeout=20)
            self.assertEqual(bench.returncode, 128 + signal.SIGTERM)
            self.wait(lambda: not Path("/proc", pid.read_text()).exists())

    def wait(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
