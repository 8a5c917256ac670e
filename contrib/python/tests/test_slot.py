"""Slots: two of them over the same memory, in two threads, are two ranks."""

import socket
import threading
import time
import unittest
from unittest import mock

import tests_path  # noqa: F401

from gorun import constants
from gorun.slot import Slot, Slots, suits
from gorun.slot_table import LINE

try:
    import numpy as np

    from gorun import sums
except ImportError:
    np = None


class Ranks:
    """Some ranks, and the sockets on which their daemon can tell them something."""

    def __init__(self, count):
        self.memory = memoryview(bytearray(1 << 20))
        self.slept = 0
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.slots = [
            Slots(self.memory, count, me, pair[0].fileno(), lambda me=me: self.look(me))
            for me, pair in enumerate(self.pairs)
        ]
        for slots in self.slots:
            slots.open("x", 1024, constants.FLOAT32, constants.SUM, (4,), 16)

    def look(self, me):
        self.slept += 1
        try:
            self.pairs[me][0].recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass

    def tell(self, me):
        self.pairs[me][1].send(b"x")

    def asleep(self, me):
        """Wait until a rank sleeps."""
        deadline = time.monotonic() + 20
        while not self.memory.cast("I")[LINE * me // 4 + 1]:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def end(self):
        for slots in self.slots:
            slots.end()
        for pair in self.pairs:
            pair[0].close()
            pair[1].close()

    def find(self, me):
        return self.slots[me].find("x", constants.SUM)

    def all(self, each):
        """Run each(rank) in threads and return what they return."""
        out = [None] * len(self.slots)

        def run(me):
            out[me] = each(me)

        threads = [threading.Thread(target=run, args=(me,)) for me in range(len(out))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        return out


class Test(unittest.TestCase):
    def ranks(self, count):
        ranks = Ranks(count)
        self.addCleanup(ranks.end)
        return ranks

    def test_one_never_comes_another_not_yet(self):
        """Who comes does not wait for rank 0, which rings nobody when it comes: rank 1 never will."""
        ranks = self.ranks(3)
        ranks.slots[1].close("x")
        met = ranks.all(lambda me: me == 2 and ranks.slots[2].meet("x", ranks.find(2)))
        self.assertEqual(met, [False] * 3)
        self.assertIsNone(ranks.find(2))

    def test_meets_again_and_again(self):
        ranks = self.ranks(3)

        def each(me):
            seen = []
            slot = ranks.find(me)
            for use in range(200):
                half = ranks.slots[me].half(slot)
                slot.inputs[half][me][0] = (use * 3 + me) % 256
                self.assertTrue(ranks.slots[me].meet("x", slot))
                seen.append(tuple(view[0] for view in slot.inputs[half]))
            return seen

        want = [tuple((use * 3 + me) % 256 for me in range(3)) for use in range(200)]
        self.assertEqual(ranks.all(each), [want] * 3)

    def waits(self, cpus):
        """Return what a rank does until it sleeps, by a clock that each look moves by about 1 µs."""
        done = []

        def clock():
            done.append("look")
            return done.count("look") / (1 << 20)

        def give_away():
            done.append("yield")

        with mock.patch("os.sched_getaffinity", return_value=cpus), mock.patch("os.sched_yield", give_away):
            with mock.patch("gorun.slot.time.perf_counter", clock):
                ranks = self.ranks(2)
                first = threading.Thread(target=lambda: ranks.slots[0].meet("x", ranks.find(0)))
                first.start()
                ranks.asleep(0)
                ranks.slots[1].meet("x", ranks.find(1))
                first.join(30)
                assert not first.is_alive()
        return done

    def test_gives_its_cpu_away_before_every_look_where_ranks_outnumber_cpus(self):
        self.assertEqual(self.waits({0}), ["yield", "look"] * 211)  # 200 µs

    def test_keeps_its_cpu_for_a_moment_where_every_rank_has_one(self):
        self.assertEqual(self.waits({0, 1}), ["look"] * 54 + ["yield", "look"] * 157)  # 50 µs, 200 µs

    def test_sleeps_until_the_last_has_come(self):
        ranks = self.ranks(3)

        def each(me):
            slot = ranks.find(me)
            for use in range(5):
                ranks.slots[me].half(slot)
                if me == use % 3:
                    for other in {0, 1, 2} - {me}:
                        ranks.asleep(other)
                self.assertTrue(ranks.slots[me].meet("x", slot))
            return True

        self.assertEqual(ranks.all(each), [True] * 3)
        self.assertGreater(ranks.slept, 0)

    def test_threads_of_a_rank_sleep_together(self):
        ranks = self.ranks(2)
        for slots in ranks.slots:
            slots.open("y", 4096, constants.FLOAT32, constants.SUM, (4,), 16)

        def each(me):
            # Threads 0 and 1 are rank 0 in both slots; 2 and 3 rank 1, which comes when both sleep.
            name = "xy"[me % 2]
            slots = ranks.slots[me // 2]
            slot = slots.find(name, constants.SUM)
            for _ in range(20):
                slots.half(slot)
                self.assertTrue(slots.meet(name, slot))
            return True

        out = []
        threads = [threading.Thread(target=lambda me=me: out.append(each(me))) for me in range(4)]
        for thread in threads[:2]:
            thread.start()
        ranks.asleep(0)
        for thread in threads[2:]:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(out, [True] * 4)

    def test_nobody_completes_what_one_does_not_come_to(self):
        for how in ("close", "left"):
            with self.subTest(how):
                ranks = self.ranks(3)

                def each(me, ranks=ranks, how=how):
                    if me == 0 and how == "close":
                        return ranks.slots[me].close("x")
                    if me == 0:
                        ranks.memory.cast("I")[0] = 1
                        return ranks.tell(1), ranks.tell(2)
                    slot = ranks.find(me)
                    ranks.slots[me].half(slot)
                    return ranks.slots[me].meet("x", slot)

                self.assertEqual(ranks.all(each)[1:], [False, False])
                self.assertIsNone(ranks.find(1))
                self.assertTrue(ranks.slots[1].offers("x"))

    def test_who_came_before_leaving_counts(self):
        ranks = self.ranks(2)
        slot = ranks.find(0)
        ranks.slots[0].half(slot)
        ranks.memory.cast("I")[LINE // 4] = 1
        ranks.memory.cast("Q")[(1024 + LINE) // 8] = 2
        self.assertTrue(ranks.slots[0].meet("x", slot))
        ranks.memory.cast("Q")[(1024 + LINE) // 8] = 5  # came to the second use, and never again
        ranks.slots[0].half(slot)
        self.assertTrue(ranks.slots[0].meet("x", slot))
        ranks.slots[0].half(slot)
        self.assertFalse(ranks.slots[0].meet("x", slot))

    def test_given_up_by_another_thread(self):
        """A thread that has found a slot does not come to it after the others have learned that none will."""
        ranks = self.ranks(2)
        slot = ranks.find(0)
        ranks.slots[0].half(slot)
        ranks.slots[0].turn_off()
        self.assertFalse(ranks.slots[0].meet("x", slot))
        self.assertEqual(ranks.memory.cast("Q")[slot.mine], 1)

    def test_interrupted(self):
        ranks = self.ranks(2)

        def interrupt(me):
            raise KeyboardInterrupt

        ranks.look = interrupt
        ranks.tell(0)
        slot = ranks.find(0)
        ranks.slots[0].half(slot)
        with self.assertRaises(KeyboardInterrupt):
            ranks.slots[0].meet("x", slot)
        self.assertIsNone(ranks.find(0))
        self.assertEqual(ranks.memory.cast("Q")[slot.mine], 3)  # gives the first use up
        other = ranks.find(1)
        ranks.slots[1].half(other)
        self.assertTrue(ranks.slots[1].meet("x", other))  # it had come
        ranks.slots[1].half(other)
        self.assertFalse(ranks.slots[1].meet("x", other))

    def test_join_waits_for_threads_in_a_slot(self):
        ranks = self.ranks(2)
        slots, inside, leave = ranks.slots[0], threading.Event(), threading.Event()

        def work():
            slots.enter()
            inside.set()
            leave.wait(30)
            slots.leave()

        thread = threading.Thread(target=work)
        thread.start()
        inside.wait(30)
        joins = threading.Thread(target=slots.turn_off)
        joins.start()
        joins.join(0.05)
        self.assertTrue(joins.is_alive())
        leave.set()
        for each in (thread, joins):
            each.join(30)
            self.assertFalse(each.is_alive())
        slots.enter()
        slots.turn_off()  # its own thread is no other

    def test_the_session_ends_while_it_is_waited_for(self):
        ranks = self.ranks(2)
        slots, slot = ranks.slots[0], ranks.find(0)

        def each(me):
            if me == 0:
                with self.assertRaisesRegex(ConnectionError, "closed"):
                    slots.meet("x", slot)
                return True
            ranks.asleep(0)
            ranks.look = mock.Mock(side_effect=ConnectionError("closed"))
            slots.end()
            return True

        self.assertEqual(ranks.all(each), [True, True])

    def test_nobody_completes_what_others_were_told_has_failed(self):
        ranks = self.ranks(2)
        slots, words, flags = ranks.slots[0], ranks.memory.cast("Q"), ranks.memory.cast("I")
        words[(1024 + LINE) // 8] = 2  # rank 1 waited for rank 0
        flags[0] = flags[LINE // 4] = 2  # until the world ended
        looks = []

        def look(me):
            looks.append(me)
            if len(looks) == 3:
                raise ConnectionError("operations were given up")

        ranks.look = look
        slot = ranks.find(0)
        slots.half(slot)
        with self.assertRaisesRegex(ConnectionError, "given up"):
            slots.meet("x", slot)
        self.assertIsNone(ranks.find(0))

    def test_other_reductions(self):
        ranks = self.ranks(2)
        find = ranks.slots[0].find
        self.assertIsNone(find("y", constants.SUM))
        self.assertIsNone(find("x", constants.AVERAGE))
        self.assertIsNone(find("x", constants.SUM | 2 << 4))  # travels as float16
        self.assertFalse(suits(constants.INT32, constants.AVERAGE, 1.0, 1.0))
        self.assertFalse(suits(constants.FLOAT32, constants.SUM, 0.5, 1.0))
        for _ in range(16):
            ranks.slots[0].close("x")
            ranks.slots[0].open("x", 1024, constants.FLOAT32, constants.SUM, (4,), 16)
        self.assertFalse(ranks.slots[0].offers("x"))
        self.assertTrue(ranks.slots[0].offers("y"))
        ranks.slots[0].turn_off()
        self.assertFalse(ranks.slots[0].offers("y"))

    def test_a_slot_lies_in_the_memory(self):
        memory = memoryview(bytearray(4096))
        for offset, nbytes in ((1024, 64), (4096 - 2 * 64 - 4 * 64, 64)):
            Slot(memory, offset, 2, 0, 1, 1, (nbytes,), nbytes)
        last = 4096 - 2 * 64 - 4 * 64
        for offset, nbytes in ((1, 64), (0, 64), (64, 64), (4096, 64), (last, 65), (1 << 63, 1)):
            with self.assertRaises(ValueError, msg=(offset, nbytes)):
                Slot(memory, offset, 2, 0, 1, 1, (nbytes,), nbytes)

    @unittest.skipIf(np is None, "needs numpy")
    def test_sums(self):
        def add(half, by, *arrays):
            memories = [memoryview(array.tobytes()) for array in arrays]
            halves = [memories, memories[:1] * 2]
            return sums.Inputs(halves if half == 0 else halves[::-1], arrays[0].dtype.name, by).add(half)

        for filler in (0, 2000):  # NaNs are looked for in another way where there are many numbers
            rest = np.full(filler, 0.0, np.float32)
            one, two, three = (np.append(np.float32([x, np.nan, -0.0, np.inf]), rest) for x in (1, 2, 3))
            two.view(np.uint32)[1] = 0xFFC12345
            for half in (0, 1):
                got = add(half, 1 / 3, one, two, three)
                self.assertEqual(
                    got[:4].view(np.uint32).tolist(), [0x40000000, 0x7FC00000, 0x80000000, 0x7F800000]
                )
            wrong = np.append(np.array([np.inf, 3e38, 1e-45], np.float32), rest)
            with np.errstate(all="raise"):  # what the user has errors for is the user's arithmetic
                got = add(0, 0.5, wrong, wrong * np.append(np.float32([-1, 1, 1]), rest))
            self.assertTrue(np.isnan(got[0]) and np.isinf(got[1]) and not np.isnan(got[1:]).any())
        number = np.array(2**31 - 1, np.int32)
        self.assertEqual(int(add(0, 1.0, number, number)[0]), -2)


if __name__ == "__main__":
    unittest.main()
