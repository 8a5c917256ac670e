"""The timeline of a world of one: its files and its switches. mp/test_life.py has those of several ranks."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from gorun import basics, objects
from gorun.timeline import path_of


class TimelineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "line.json"
        self.addCleanup(basics.shutdown)
        patch = mock.patch.object(basics._state, "lives", 0)
        patch.start()
        self.addCleanup(patch.stop)

    def names(self, path):
        return [event["name"] for event in json.loads(path.read_text())]

    def test_from_the_environment(self):
        with mock.patch.dict(os.environ, HOROVOD_TIMELINE=str(self.path), HOROVOD_TIMELINE_MARK_CYCLES="1"):
            basics.init()
            objects.allgather_object(1, name="thing")
            with self.assertRaises(ValueError):
                basics.start_timeline("elsewhere")
            basics.shutdown()
            basics.init()  # does not overwrite it
            basics.shutdown()
        events = json.loads(self.path.read_text())
        self.assertIn("start_time_since_epoch_in_micros", events[0]["args"])
        name = {"name": "allgather_object.thing"}
        row = next(event["pid"] for event in events if event.get("args") == name)
        mine = [event for event in events if event["pid"] == row and event["ph"] != "M"]
        phases = [(event["name"], event["ph"]) for event in mine]
        self.assertEqual(
            phases,
            [("NEGOTIATE_ALLGATHER", "B"), ("0", "X"), ("NEGOTIATE_ALLGATHER", "E"), ("ALLGATHER", "B"),
             ("ALLGATHER", "E")],
        )  # fmt: skip
        times = [event["ts"] for event in mine]
        self.assertEqual(times, sorted(times))
        self.assertIn("CYCLE_START", self.names(self.path))
        self.assertTrue(self.path.with_name("line.2.json").exists())

    def test_from_the_script(self):
        with self.assertRaises(ValueError):
            basics.start_timeline("x")  # before init()
        basics.init()
        with self.assertRaisesRegex(ValueError, "HOROVOD_TIMELINE=DYNAMIC"):
            basics.start_timeline("x")
        with mock.patch.dict(os.environ, HOROVOD_TIMELINE="DYNAMIC"):
            objects.allgather_object(1, name="before")
            basics.start_timeline(str(self.path))
            with self.assertRaises(ValueError):
                basics.start_timeline("x")
            objects.allgather_object(1, name="during")
            basics.stop_timeline()
            objects.allgather_object(1, name="after")
        text = self.path.read_text()
        self.assertIn("ALLGATHER", self.names(self.path))
        self.assertEqual(["during" in text, "before" in text, "after" in text], [True, False, False])

    def test_a_file_that_cannot_be_written(self):
        with mock.patch.dict(os.environ, HOROVOD_TIMELINE="/nowhere/at/all"):
            with self.assertRaises(OSError):
                basics.init()
        self.assertFalse(basics.is_initialized())

    def test_file_of_a_rank(self):
        self.assertEqual(path_of("/a.b/t.json", 0), "/a.b/t.json")
        self.assertEqual(path_of("/a.b/t.json", 12), "/a.b/t.rank12.json")
        self.assertEqual(path_of("/a.b/t", 1), "/a.b/t.rank1")
