"""Small tensors under one name, again and again: the ranks of one host reduce them in a slot."""

import contextlib
import os
import signal
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np
import torch

import gorun
import gorun.numpy as hvd
import gorun.torch
from gorun import basics
from gorun.exceptions import HorovodInternalError
from gorun.world import World

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def has_slot(name):
    return basics.world().session.has_slot(name)


def mine():
    return np.full(3, RANK + 1.0)


ALL = [SIZE * (SIZE + 1) / 2] * 3  # mine() of all ranks


@contextlib.contextmanager
def recorded(mine):
    """What a rank records goes to the daemon."""
    with tempfile.TemporaryDirectory() as folder:
        if mine:
            hvd.start_timeline(os.path.join(folder, "timeline.json"))
        yield
        if mine:
            hvd.stop_timeline()


class Slots(unittest.TestCase):
    def setUp(self):
        if SIZE == 1 or not basics.world().session.has_belt:
            self.skipTest("there are no slots")
        timeline = mock.patch.dict(os.environ, {"HOROVOD_TIMELINE": "DYNAMIC"})
        timeline.start()
        self.addCleanup(timeline.stop)

    def open(self, name, shape=(3,), **options):
        """Have a slot for sums of a name."""
        for _ in range(2):
            hvd.allreduce(np.ones(shape), name=name, op=hvd.Sum, **options)
        self.assertTrue(has_slot(f"allreduce.{name}"))


class Begun(Slots):
    """Sums that are begun under names that have slots, and waited for later."""

    def test_in_any_order(self):
        x = [np.full(3, float(i)) for i in range(40)]
        for use in range(4):
            order = list(range(40)) if (RANK + use) % 2 else list(reversed(range(40)))
            handles = {i: hvd.allreduce_async(x[i] + use, name=f"order.{i}", op=hvd.Sum) for i in order}
            for i in reversed(order):
                self.assertEqual(hvd.synchronize(handles[i]).tolist(), [(i + use) * SIZE] * 3)

    def test_many(self):
        """In turns begun in place, begun for a new tensor, and waited for."""
        names = [f"many.{i}" for i in range(1000)]
        for use in range(4):
            x = [torch.full((2,), float(RANK + i)) for i in range(1000)]
            for i in range(use % 3, 1000, 3):
                gorun.torch.allreduce_(x[i], name=names[i], op=hvd.Sum)
            handles = {
                i: (gorun.torch.allreduce_async_ if (i + use) % 2 else gorun.torch.allreduce_async)(
                    x[i], name=names[i], op=hvd.Sum
                )
                for i in range(1000) if i % 3 != use % 3
            }  # fmt: skip
            for i in range(1000):
                got = gorun.torch.synchronize(handles[i]) if i in handles else x[i]
                self.assertEqual(got.tolist(), [SIZE * (SIZE - 1) / 2 + i * SIZE] * 2)
                self.assertEqual(got is x[i], i not in handles or (i + use) % 2 == 1)

    def fall_back(self, name, others):
        """Begin a sum, rank 0 by the daemon, and wait for it; the others call others() first."""
        with recorded(RANK == 0):
            x = mine()
            handle = hvd.allreduce_async(x, name=name, op=hvd.Sum)
            x[:] = 1000  # what was begun is what counts
            if RANK:
                others(handle)
            self.assertEqual(hvd.synchronize(handle).tolist(), ALL)

    def test_one_falls_back(self):
        def polls(handle):
            while not hvd.poll(handle):
                pass

        for name, others in (("wait", lambda handle: None), ("poll", polls)):
            self.open(f"falls.{name}")
            self.fall_back(f"falls.{name}", others)
            self.open(f"falls.{name}")

    def test_one_falls_back_while_others_wait_for_something_else(self):
        def meanwhile(name):
            return hvd.allreduce(np.ones(300), name=name, op=hvd.Sum)[7]

        for other in ("slot", "daemon"):
            name = f"meanwhile.{other}"
            self.open("waits")
            if other == "slot":
                self.open(name, 300)
            self.fall_back("waits", lambda _, name=name: self.assertEqual(meanwhile(name), SIZE))
            if RANK == 0:
                self.assertEqual(meanwhile(name), SIZE)

    def test_one_falls_back_and_others_wait_late(self):
        self.open("deserted")
        with recorded(RANK == 0):
            handle = hvd.allreduce_async(np.ones(3), name="deserted", op=hvd.Sum)
            if RANK == 0:
                hvd.synchronize(handle)
        hvd.barrier()
        if RANK:
            with self.assertRaisesRegex(ValueError, "same name"):
                hvd.allreduce_async(np.full(3, 2.0), name="deserted", op=hvd.Sum)
            self.assertEqual(hvd.synchronize(handle).tolist(), [SIZE] * 3)
        again = hvd.allreduce_async(np.full(3, 2.0), name="deserted", op=hvd.Sum)
        self.assertEqual(hvd.synchronize(again).tolist(), [2 * SIZE] * 3)

    def test_handed_in_as_it_travelled(self):
        """Not as what comes after it does."""
        with gorun.wire_compression("fp16"):
            for _ in range(2):
                hvd.allreduce(np.ones(3, np.float32), name="thin", op=hvd.Sum)
            self.assertTrue(has_slot("allreduce.thin"))
            with recorded(RANK == 0):
                handle = hvd.allreduce_async(np.ones(3, np.float32), name="thin", op=hvd.Sum)
        self.assertEqual(hvd.synchronize(handle).tolist(), [SIZE] * 3)

    def test_target_that_became_another(self):
        for _ in range(4):
            x = torch.ones(4)
            handle = gorun.torch.allreduce_async_(x, name="resized", op=hvd.Sum)
            x.resize_(1)
            hvd.barrier()
            with self.assertRaises(RuntimeError):
                gorun.torch.synchronize(handle)
            self.assertEqual(x.tolist(), [1])
            x = torch.ones(4)
            handle = gorun.torch.allreduce_async_(x, name="retyped", op=hvd.Sum)
            x.data = x.data.view(torch.int32)
            hvd.barrier()
            with self.assertRaises(RuntimeError):
                gorun.torch.synchronize(handle)
            self.assertEqual(x.view(torch.float32).tolist(), [1] * 4)

    def test_one_handle_in_many_threads(self):
        """It ends once, however many ask for it."""
        self.open("shared")
        calls = []
        keep = World.keep

        def counted(*args):
            calls.append(args)
            time.sleep(0.01)
            keep(*args)

        got = []

        def wait(handle):
            got.append(hvd.synchronize(handle))

        for use in range(12):
            x = np.full(3, use + 1.0)
            got.clear()
            calls.clear()
            with mock.patch.object(World, "keep", counted):
                handle = hvd.allreduce_async_(x, name="shared", op=hvd.Sum)
                threads = [
                    threading.Thread(target=what, args=(handle,)) for what in (wait, wait, self.until_polled)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(30)
                    self.assertFalse(thread.is_alive())
            self.assertEqual(len(calls), 1)
            self.assertEqual(len(got), 2)
            self.assertTrue(all(one is None or one is x for one in got))
            self.assertEqual(x.tolist(), [(use + 1) * SIZE] * 3)

    def until_polled(self, handle):
        with contextlib.suppress(ValueError):  # somebody has waited for it
            while not hvd.poll(handle):
                time.sleep(0)

    def test_one_name_in_many_threads(self):
        """A thread that finds it taken gets an error."""
        self.open("rivals")
        tokens, wrong = iter(range(300)), []

        def each(_):
            for token in tokens:
                while True:
                    try:
                        x = np.ones(3)
                        begin = (hvd.allreduce_async_, hvd.allreduce_async)[token % 2]
                        got = hvd.synchronize(begin(x, name="rivals", op=hvd.Sum))
                        break
                    except ValueError as error:
                        if "same name" not in str(error):
                            wrong.append(error)
                        time.sleep(0.0001)
                if got.tolist() != [SIZE] * 3:
                    wrong.append(got)

        threads = [threading.Thread(target=each, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            self.assertFalse(thread.is_alive())
        self.assertEqual(wrong, [])


class Test(Slots):
    def test_one_name_for_tensors_that_lie_elsewhere(self):
        kinds = [torch.float32] * 4 + [torch.float64] * 3
        for value, x in enumerate([torch.full((3,), value, dtype=kind) for value, kind in enumerate(kinds)]):
            gorun.torch.allreduce_(x, name="elsewhere", op=hvd.Sum)
            self.assertEqual(x.tolist(), [value * SIZE] * 3)

    def test_same_bits_as_without(self):
        rng = np.random.default_rng(RANK)
        for dtype in (np.float32, np.float64, np.int32, np.int64):
            for op in (hvd.Sum, hvd.Average) if dtype in (np.float32, np.float64) else (hvd.Sum,):
                for shape in ((), (1,), (7,), (3, 5), (4096,)):
                    x = (rng.standard_normal(shape) * 1000).astype(dtype)
                    name = f"bits.{np.dtype(dtype).name}.{op}.{shape}"
                    want = hvd.allreduce(x, name=name, op=op)
                    self.assertTrue(has_slot(f"allreduce.{name}"))
                    for _ in range(3):
                        got = hvd.allreduce(x, name=name, op=op)
                        self.assertEqual(got.tobytes(), want.tobytes(), name)
                        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))

    def test_nan_is_one_on_all_ranks(self):
        x = np.array([np.nan, -0.0, np.inf], np.float32)
        x.view(np.uint32)[0] |= 0x80000000 | RANK
        for _ in range(4):
            y = hvd.allreduce(x, name="nan", op=hvd.Sum)
            self.assertEqual(y.view(np.uint32).tolist(), [0x7FC00000, 0x80000000, 0x7F800000])

    def test_in_place_and_strided(self):
        for use in range(4):
            x = np.full((4, 6), RANK + use, np.float64)[:, ::2]
            self.assertIs(hvd.allreduce_(x, name="strided", op=hvd.Average), x)
            self.assertEqual(x.tolist(), [[(SIZE - 1) / 2 + use] * 3] * 4)

    def test_tensor_that_is_negated_when_read(self):
        x = torch.tensor([complex(0, RANK + 1), 3j], dtype=torch.complex64).conj().imag
        self.assertTrue(x.is_neg())
        for use in range(3):
            with self.subTest(use=use):
                got = gorun.torch.allreduce(x, name="negated", op=hvd.Sum)
                self.assertEqual(got.tolist(), [-SIZE * (SIZE + 1) / 2, -3.0 * SIZE])
                self.assertTrue(has_slot("allreduce.negated"))

    def test_other_tensors_under_the_name(self):
        for use in range(60):
            n = 1 + use // 3 % 2
            self.assertEqual(hvd.allreduce(np.ones(n), name="other", op=hvd.Sum).tolist(), [SIZE] * n)

    def test_disagreement_in_a_slot(self):
        for use in range(9):
            n = 2 if use % 3 == 2 and RANK == 0 else 1
            try:
                hvd.allreduce(np.ones(n), name="disagree", op=hvd.Sum)
                self.assertNotEqual(use % 3, 2)
            except HorovodInternalError as error:
                self.assertEqual(use % 3, 2)
                self.assertIn("[2]", str(error))

    def test_tensors_of_any_memory(self):
        mean = (SIZE + 1) / 2
        for use in range(4):
            mine = RANK + 1.0
            negated = torch.complex(torch.zeros(3), torch.full((3,), -mine)).conj().imag
            parameter = torch.nn.Parameter(torch.full((2, 2), mine))
            tensors = [
                torch.full((3,), mine), torch.full((4, 6), mine).t(), torch.full((8,), mine)[::2],
                torch.tensor(mine), negated, parameter,
            ]  # fmt: skip
            for i, tensor in enumerate(tensors):
                for op, factor in ((hvd.Sum, SIZE), (hvd.Average, 1)):
                    got = gorun.torch.allreduce(tensor + use, name=f"memory.{i}.{op}", op=op)
                    self.assertTrue((got == (mean + use) * factor).all(), (i, op))
                self.assertIs(gorun.torch.allreduce_(tensor, name=f"m.{i}", op=hvd.Sum), tensor)
                self.assertTrue((tensor == mean * SIZE).all(), i)
            self.assertTrue(parameter.requires_grad and parameter.grad_fn is None)
            if use:
                self.assertTrue(has_slot("allreduce.m.5"))

    def test_failed_before_it_met_the_others(self):
        """An operation that ended in an exception was not submitted: the next one takes its place."""
        for use in range(9):
            if RANK == 0 and use % 3 == 2:
                fails = mock.patch.object(hvd._Numpy, "address", side_effect=MemoryError)
                with fails, self.assertRaises(MemoryError):
                    hvd.allreduce(np.ones(3), name="failed", op=hvd.Sum)
            got = hvd.allreduce(np.full(3, float(use)), name="failed", op=hvd.Sum)
            self.assertEqual(got.tolist(), [use * SIZE] * 3)
            self.assertTrue(has_slot("allreduce.failed"))

    def test_zz_join(self):
        """The last one, because there are no slots after it.

        Rank 0 was interrupted in one: it joins without waiting there for others, who never come.
        """
        for _ in range(3):
            hvd.allreduce(np.ones(2), name="interrupted", op=hvd.Sum)
        if RANK == 0:
            self.assertTrue(has_slot("allreduce.interrupted"))
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(KeyboardInterrupt):
                hvd.allreduce(np.ones(2), name="interrupted", op=hvd.Sum)
        for use in range(3 + RANK):
            got = hvd.allreduce(np.ones(2), name="joined", op=hvd.Sum)
            self.assertEqual(got.tolist(), [SIZE if use < 3 else SIZE - (use - 2)] * 2)
        self.assertEqual(hvd.join(), SIZE - 1)
        self.assertEqual(hvd.allreduce(np.ones(2), name="joined", op=hvd.Sum).tolist(), [SIZE] * 2)


class Worlds(Slots):
    """Sums that are begun in a slot when the world changes."""

    def setUp(self):
        hvd.shutdown()
        hvd.init()
        super().setUp()

    def test_join_before_the_slot_is_known(self):
        """Nobody comes to a slot that the daemon gave before the join, also if that is read only after it."""
        first = hvd.allreduce_async(mine(), name="unread", op=hvd.Sum)
        time.sleep(0.2)  # the daemon has answered, and nobody has read that
        hvd.join()
        self.assertEqual(hvd.synchronize(first).tolist(), ALL)
        self.assertFalse(has_slot("allreduce.unread"))
        for use in range(5):
            time.sleep(0.05 * (RANK + use & 1))
            got = hvd.allreduce(mine() + use, name="unread", op=hvd.Sum)
            self.assertEqual(got.tolist(), [ALL[0] + use * SIZE] * 3)

    def test_shutdown(self):
        self.open("closed")
        self.open("open")
        handle = hvd.allreduce_async(np.ones(3), name="closed", op=hvd.Sum)
        if RANK == 0:
            never = hvd.allreduce_async(np.ones(3), name="open", op=hvd.Sum)
        hvd.barrier()
        waits = threading.Thread(target=lambda: wrong.append(self.refused(never)))
        wrong = []
        if RANK == 0:
            waits.start()
            time.sleep(0.1)
        hvd.shutdown()
        if RANK == 0:
            waits.join(30)
            self.assertEqual(wrong, [True])
        hvd.init()
        self.assertTrue(self.refused(handle))
        self.open("closed")

    def refused(self, handle):
        try:
            hvd.synchronize(handle)
        except (HorovodInternalError, ValueError):
            return True
        return False

    def test_waited_for_after_others_have_left(self):
        self.open("late")
        handle = hvd.allreduce_async(mine(), name="late", op=hvd.Sum)
        hvd.barrier()
        if RANK == 0:
            time.sleep(0.3)
            self.assertEqual(hvd.synchronize(handle).tolist(), ALL)
        hvd.shutdown()


if __name__ == "__main__":
    unittest.main()
