"""What a rank counts about its own time."""

import os
import tempfile
import time
import unittest
from unittest import mock

from gorun import counters


def value(c: counters.Counters, at: int) -> int:
    return c._words[at // 8]


class TestCounters(unittest.TestCase):
    def setUp(self) -> None:
        file = tempfile.NamedTemporaryFile()
        self.addCleanup(file.close)
        file.truncate(counters.PAGE_BYTES)
        self.file = file
        self.counters = counters.Counters({"GORUN_COUNTERS": file.name})
        self.counters.begin()

    def read(self, at: int) -> int:
        """Return a counter as another process reads it."""
        return int.from_bytes(os.pread(self.file.fileno(), 8, at), "little")

    def test_wait_is_split_when_all_had_come(self) -> None:
        self.counters._words[counters.HIDDEN // 8] = 9_000_000
        began = counters.now() - 10_000_000
        self.counters.shown(self.counters.blocked(began), 4_000_000)
        self.assertEqual(self.read(counters.COMMUNICATION), 4_000_000)
        self.assertGreaterEqual(self.read(counters.OTHERS), 6_000_000)
        self.assertEqual(self.read(counters.HIDDEN), 5_000_000)

    def test_stacks_are_offered_though_the_library_has_begun(self) -> None:
        self.counters._words[counters.BEGAN // 8] = 7
        later = counters.Counters({"GORUN_COUNTERS": self.file.name})
        with mock.patch.object(counters, "_offer_stacks", return_value=(47, 48)) as offer:
            later.begin()
            later.begin()
        offer.assert_called_once()
        self.assertEqual(self.read(counters.BEGAN), 7)
        self.assertEqual((self.read(counters.SIGNAL), self.read(counters.MAIN_SIGNAL)), (47, 48))

    def test_a_count_that_another_thread_has_overwritten(self) -> None:
        self.counters._words[counters.HIDDEN // 8] = 1_000_000
        self.counters.shown(4_000_000, 4_000_000)
        self.assertEqual(self.read(counters.COMMUNICATION), 4_000_000)
        self.assertEqual(self.read(counters.HIDDEN), 0)

    def test_loading_counts_the_wait_for_each_item_and_not_the_work_on_it(self) -> None:
        def items():  # type: ignore[no-untyped-def]
            for i in range(3):
                time.sleep(0.01)
                self.assertEqual(self.read(counters.ACTIVITY), counters.WAITING_FOR_DATA)
                yield i

        seen = []
        for i in self.counters.loading(items()):
            self.assertEqual(self.read(counters.ACTIVITY), counters.COMPUTING)
            time.sleep(0.02)
            seen.append(i)
        self.assertEqual(seen, [0, 1, 2])
        data = self.read(counters.DATA)
        self.assertGreaterEqual(data, 30_000_000)
        self.assertGreaterEqual(counters.now() - self.read(counters.BEGAN) - data, 60_000_000)

    def test_steps(self) -> None:
        self.counters.step()
        time.sleep(0.01)
        self.counters.step()
        self.assertEqual(self.read(counters.STEPS), 2)
        self.assertGreaterEqual(self.read(counters.STEP_TIME), 10_000_000)

    def test_without_a_page(self) -> None:
        for environ in ({}, {"GORUN_COUNTERS": "/nowhere"}, {"GORUN_COUNTERS": "/dev/null"}):
            alone = counters.Counters(environ)
            alone.step()
            self.assertEqual(value(alone, counters.STEPS), 1)

    def test_a_forked_process_counts_for_itself(self) -> None:
        before = value(counters.counters, counters.STEPS)
        child = os.fork()
        if not child:
            counters.counters.step()
            os._exit(0 if value(counters.counters, counters.STEPS) == 1 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(value(counters.counters, counters.STEPS), before)
