"""What a process finds in its environment when its world begins after it."""

import os
import types
import unittest
from unittest import mock

from gorun import basics

SESSION = types.SimpleNamespace(rank=2, size=3, local_rank=0, local_size=1, cross_rank=1, cross_size=2)


class TestSpare(unittest.TestCase):
    def corrected(self, **environ: str) -> dict:
        with mock.patch.dict(os.environ, environ, clear=True):
            basics._correct_environment(SESSION)
            return dict(os.environ)

    def test_numbers(self) -> None:
        found = self.corrected(GORUN_SPARE="1", RANK="3", WORLD_SIZE="3", LOCAL_RANK="1", GROUP_RANK="3")
        self.assertEqual(("2", "3", "0"), tuple(found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
        self.assertEqual(("2", "0"), (found["HOROVOD_RANK"], found["GORUN_LOCAL_RANK"]))
        self.assertNotIn("GORUN_SPARE", found)

    def test_others_keep_theirs(self) -> None:
        self.assertEqual({"RANK": "1"}, self.corrected(RANK="1"))
