"""The tool that merges the timelines of several ranks: made-up ones, and those of a real job."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GORUN = ROOT / "bin" / "gorun"
TOOL = ROOT / "contrib" / "tools" / "timelines.py"
spec = importlib.util.spec_from_file_location("timelines", TOOL)
timelines = importlib.util.module_from_spec(spec)
spec.loader.exec_module(timelines)

JOB = """
from gorun import basics, objects
basics.init()
for i in range(3):
    objects.allgather_object(i, name="thing")
basics.shutdown()
"""


def timeline(rank, start, *events):
    args = {"name": f"rank {rank}", timelines.START: start}
    return [{"name": "process_name", "ph": "M", "pid": 0, "args": args}, *events]


class TimelinesTest(unittest.TestCase):
    def test_merge(self):
        row = {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "grad"}}
        begin = {"name": "ALLREDUCE", "ph": "B", "ts": 10.5, "pid": 1, "tid": 0}
        mark = {"name": "CYCLE_START", "ph": "i", "ts": 1, "pid": 0, "tid": 0, "s": "g"}
        merged = timelines.merge([timeline(1, 5_000_250, row, begin), timeline(0, 5_000_000, begin, mark)])
        operations = [(e["pid"], e["tid"], e["ts"]) for e in merged if e["name"] == "ALLREDUCE"]
        self.assertEqual(operations, [(0, 1, 10.5), (1, 1, 260.5)])
        self.assertIn({**row, "name": "thread_name", "pid": 1, "tid": 1, "ts": 250}, merged)
        self.assertIn({**mark, "s": "p"}, merged)
        names = [(e["pid"], e["args"]["name"]) for e in merged if e["name"] == "process_name"]
        self.assertEqual(names, [(0, "rank 0"), (1, "rank 1")])

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "each may be given once"):
            timelines.merge([timeline(1, 1), timeline(1, 2)])
        for wrong in ([], [{"name": "x"}], [{"args": {"name": "rank 1"}}]):
            with self.assertRaises(ValueError):
                timelines.merge([wrong])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.json"
            path.write_text("[1]")
            command = [sys.executable, TOOL, "-o", path, path]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"^timelines: error: read .*t\.json: ")

    def test_job(self):
        if not GORUN.exists():
            self.skipTest(f"{GORUN} is not built: make build")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.json"
            script = Path(folder) / "job.py"
            script.write_text(JOB)
            command = [GORUN, "-np", "2", "--timeline-filename", path, sys.executable, "-B", script]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            files = sorted(Path(folder).glob("t*.json"))
            merged = Path(folder) / "all.json"
            subprocess.run([sys.executable, TOOL, "-o", merged, *files], check=True, timeout=60)
            events = json.loads(merged.read_text())
        kind = [e for e in events if e["name"] == "ALLGATHER"]
        ends = {rank: [e["ts"] for e in kind if (e["pid"], e["ph"]) == (rank, "E")] for rank in (0, 1)}
        begins = {rank: [e["ts"] for e in kind if (e["pid"], e["ph"]) == (rank, "B")] for rank in (0, 1)}
        self.assertGreaterEqual(len(ends[0]), 3)
        self.assertEqual(len(ends[0]), len(ends[1]))
        # No rank has the result of the last before the other began with the first.
        self.assertLess(begins[0][0], ends[1][-1])
        self.assertLess(begins[1][0], ends[0][-1])
