"""The belt: threads over the same memory are ranks."""

import socket
import threading
import time
import unittest
from unittest import mock

import tests_path  # noqa: F401

from gorun import constants, counters, slot
from gorun.errors import Aborted
from gorun.slot import Slots
from gorun.slot_table import BELT, BELT_AREA, BELT_PART, LINE, MAX_BELT_BYTES, MAX_SLOT_BYTES, ON_BELT

try:
    import numpy as np

    from gorun import sums
except ImportError:
    np = None


class Ranks:
    """Some ranks with a slot on the belt, and what their daemon would tell them."""

    def __init__(self, count, nbytes):
        self.memory = memoryview(bytearray(BELT + count * BELT_AREA))
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.slots = [
            Slots(self.memory, count, me, pair[0].fileno(), lambda: None)
            for me, pair in enumerate(self.pairs)
        ]
        for slots in self.slots:
            slots.open("x", 4096 + ON_BELT, constants.FLOAT64, constants.SUM, (nbytes // 8,), nbytes)

    def carry(self, me, load):
        slots = self.slots[me]
        return slots.carry("x", slots.find("x", constants.SUM), load)

    def together(self, call):
        """Call for every rank at once, and return what each returned or raised."""
        results = [None] * len(self.slots)

        def run(me):
            try:
                results[me] = call(me)
            except BaseException as error:
                results[me] = error

        threads = [threading.Thread(target=run, args=(me,)) for me in range(len(self.slots))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        return results

    def sum(self, sources, targets=None, by=1.0):
        """Reduce a list of arrays for each rank."""
        return self.together(lambda me: self.carry(me, sums.Load(sources[me], (targets or sources)[me], by)))

    def end(self):
        for slots in self.slots:
            slots.end()
        for pair in self.pairs:
            pair[0].close()
            pair[1].close()


@unittest.skipIf(np is None, "no NumPy")
class BeltTest(unittest.TestCase):
    def ranks(self, count, nbytes):
        ranks = Ranks(count, nbytes)
        self.addCleanup(ranks.end)
        return ranks

    def test_sums_of_any_size_one_after_the_other(self):
        for count in 2, 3, 5:
            sizes = [BELT_PART // 8, BELT_PART // 8 + 1, 3 * BELT_PART // 8 + 77, 9]
            ranks = self.ranks(count, 8)
            for n in sizes * 2:
                data = [np.arange(n, dtype=np.float64) * (me + 1) for me in range(count)]
                self.assertEqual(ranks.sum([[array] for array in data]), [True] * count)
                for array in data:
                    np.testing.assert_array_equal(array, np.arange(n) * (count * (count + 1) // 2))

    def test_several_arrays_to_others_averaged(self):
        ranks = self.ranks(2, 8)
        shapes = [1, BELT_PART // 8 - 1, 7, 0, 2 * BELT_PART // 8 + 3, 100]
        sources = [[np.full(n, me + 1.0) for n in shapes] for me in range(2)]
        targets = [[np.zeros(n) for n in shapes] for _ in range(2)]
        sources[0][4][5] = np.nan
        ranks.sum(sources, targets, 0.5)
        for arrays in targets:
            self.assertTrue(np.isnan(arrays[4][5]))
            arrays[4][5] = 1.5
            for array in arrays:
                self.assertTrue((array == 1.5).all())
        self.assertEqual(sources[1][1][0], 2.0)

    def test_one_gives_up_amid_a_tensor(self):
        ranks = self.ranks(3, 8)
        data = [np.ones(BELT_PART) for _ in range(3)]

        class Interrupted(sums.Load):
            def reduce(self, at, inputs, memory):
                raise KeyboardInterrupt

        def carry(me):
            kind = Interrupted if me == 1 else sums.Load
            return ranks.carry(me, kind([data[me]], [data[me]], 1.0))

        results = ranks.together(carry)
        self.assertIsInstance(results[1], KeyboardInterrupt)
        for me in 0, 2:
            self.assertIsInstance(results[me], Aborted)
            self.assertIn("rank 1 of this host ended in the middle of it", str(results[me]))
        # Nothing goes over the belt after that, and no rank waits for another one there.
        self.assertEqual(ranks.together(lambda me: ranks.slots[me].belt.closed), [True] * 3)
        self.assertEqual(ranks.together(lambda me: ranks.slots[me].offers_belt(1 << 20)), [False] * 3)

    def test_one_is_interrupted_before_the_others_come(self):
        ranks = self.ranks(2, 8)
        ranks.slots[0]._look = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        data = [np.ones(BELT_PART), np.ones(BELT_PART)]
        with self.assertRaises(KeyboardInterrupt):
            ranks.carry(0, sums.Load([data[0]], [data[0]], 1.0))
        with self.assertRaisesRegex(Aborted, "rank 0 of this host ended in the middle of it"):
            ranks.carry(1, sums.Load([data[1]], [data[1]], 1.0))

    def test_one_is_killed(self):
        ranks = self.ranks(2, 8)
        data = np.ones(BELT_PART)
        ranks.memory.cast("Q")[(4096 + LINE) // 8] = 2  # rank 1 has come, and
        ranks.memory.cast("I")[LINE // 4] = 1  # has left
        with self.assertRaisesRegex(Aborted, "rank 1 of this host"):
            ranks.carry(0, sums.Load([data], [data], 1.0))

    def test_two_threads_do_not_share_it(self):
        ranks = self.ranks(2, 8)
        with ranks.slots[0].belt.busy:
            self.assertFalse(ranks.carry(0, None))
        self.assertIsNone(ranks.slots[0].find("x", constants.SUM))

    def test_what_its_time_counts_as(self):
        class Page(counters.Counters):
            """One for all ranks, which are threads here."""

            def shown(self, blocked, took):
                with lock:
                    super().shown(blocked, took)

            def ran(self, took):
                with lock:
                    super().ran(took)

            def missed(self, began):
                raise AssertionError("all came")

            def moved(self, began):
                seen.append(self._words[counters.ACTIVITY // 8])
                with lock:
                    super().moved(began)

        class Slow(sums.Load):
            def get(self, at, memory):
                time.sleep(0.05)
                super().get(at, memory)

        def carry(me):
            if me == 1:  # rank 0 waits for it, and then for bytes alone
                while page._words[counters.ACTIVITY // 8] != counters.WAITING_IN_GORUN:
                    time.sleep(0.001)
                time.sleep(0.05)
            data = np.ones(10)
            return ranks.carry(me, Slow([data], [data], 1.0))

        page, lock, seen, ranks = Page({}), threading.Lock(), [], self.ranks(2, 8)
        with mock.patch.object(slot, "counters", page):
            began = time.monotonic_ns()
            self.assertEqual(ranks.together(carry), [True, True])
            passed = time.monotonic_ns() - began
        others, moved = (page._words[at // 8] for at in (counters.OTHERS, counters.COMMUNICATION))
        self.assertGreaterEqual(moved, 100_000_000)  # 50 ms of each
        self.assertGreaterEqual(others, 50_000_000)
        self.assertLessEqual(others + moved, 2 * passed)
        self.assertEqual(seen[0], counters.WAITING_IN_GORUN)
        self.assertEqual(page._words[counters.ACTIVITY // 8], counters.COMPUTING)
        self.assertEqual(page._words[counters.OPERATIONS // 8], 2)

    def test_those_that_come_for_different_things_do_not_meet(self):
        for marks, met in (((7, 7, 7), True), ((7, 7, 8), False)):
            ranks, data = self.ranks(3, 8), [np.ones(9) for _ in range(3)]

            def carry(me, ranks=ranks, data=data, marks=marks):
                slots, load = ranks.slots[me], sums.Load([data[me]], [data[me]], 1.0)
                return slots.carry("x", slots.find("x", constants.SUM), load, marks[me])

            page = counters.Counters({})
            with mock.patch.object(slot, "counters", page):
                self.assertEqual(ranks.together(carry), [met] * 3)
            self.assertEqual(page._words[counters.OPERATIONS // 8] > 0, met)  # the daemon's count otherwise
            for me, slots in enumerate(ranks.slots):
                self.assertEqual(slots.find("x", constants.SUM) is not None, met)
                self.assertTrue((data[me] == (3 if met else 1)).all())

    def test_one_that_waits_too_long(self):
        ranks, data = self.ranks(2, 8), [np.ones(9), np.ones(9)]
        slots = ranks.slots[0]
        with mock.patch.object(slot, "LOOK_SECONDS", 0.01), self.assertRaises(TimeoutError):
            slots.carry(
                "x", slots.find("x", constants.SUM), sums.Load([data[0]], [data[0]], 1.0), seconds=0.02
            )
        with self.assertRaisesRegex(Aborted, "rank 0 of this host ended in the middle of it"):
            ranks.carry(1, sums.Load([data[1]], [data[1]], 1.0))

    def test_which_tensors_it_is_for(self):
        slots = self.ranks(2, 8).slots[0]
        for nbytes in MAX_SLOT_BYTES, MAX_BELT_BYTES + 1:
            self.assertFalse(slots.offers_belt(nbytes))
        for nbytes in MAX_SLOT_BYTES + 1, MAX_BELT_BYTES:
            self.assertTrue(slots.offers_belt(nbytes))

    def test_tensors_that_share_memory(self):
        data = np.zeros(10)
        self.assertTrue(sums.overlap([data[:6], data[5:]]))
        self.assertFalse(sums.overlap([data[5:], data[:5], data[:0]]))


if __name__ == "__main__":
    unittest.main()
