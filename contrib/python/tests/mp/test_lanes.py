"""Small tensors under one name, again and again: the ranks of one host reduce them in a lane."""

import signal
import threading
import unittest
from unittest import mock

import numpy as np
import torch

import gorun
import gorun.numpy as hvd
import gorun.torch
from gorun import basics
from gorun.exceptions import HorovodInternalError

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def open_lanes():
    lanes = basics.world().session.lanes
    return set() if lanes is None else set(lanes._open)


class Test(unittest.TestCase):
    def setUp(self):
        if SIZE == 1 or basics.world().session.lanes is None:
            self.skipTest("there are no lanes")

    def test_same_bits_as_without(self):
        rng = np.random.default_rng(RANK)
        for dtype in (np.float32, np.float64, np.int32, np.int64):
            for op in (hvd.Sum, hvd.Average) if dtype in (np.float32, np.float64) else (hvd.Sum,):
                for shape in ((), (1,), (7,), (3, 5), (4096,)):
                    x = (rng.standard_normal(shape) * 1000).astype(dtype)
                    name = f"bits.{np.dtype(dtype).name}.{op}.{shape}"
                    want = hvd.allreduce(x, name=name, op=op)
                    self.assertIn(f"allreduce.{name}", open_lanes())
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
                self.assertIn("allreduce.negated", open_lanes())

    def test_other_tensors_under_the_name(self):
        for use in range(60):
            n = 1 + use // 3 % 2
            self.assertEqual(hvd.allreduce(np.ones(n), name="other", op=hvd.Sum).tolist(), [SIZE] * n)

    def test_disagreement_in_a_lane(self):
        for use in range(9):
            n = 2 if use % 3 == 2 and RANK == 0 else 1
            try:
                hvd.allreduce(np.ones(n), name="disagree", op=hvd.Sum)
                self.assertNotEqual(use % 3, 2)
            except HorovodInternalError as error:
                self.assertEqual(use % 3, 2)
                self.assertIn("[2]", str(error))

    def test_ways_to_travel_that_differ(self):
        for use in range(9):
            how = "fp16" if use % 3 == 2 and RANK == 0 else "default"
            with gorun.wire_compression(how):
                try:
                    hvd.allreduce(np.ones(1, np.float32), name="travels", op=hvd.Sum)
                    self.assertNotEqual(use % 3, 2)
                except HorovodInternalError as error:
                    self.assertEqual(use % 3, 2)
                    self.assertIn("wire compression", str(error))

    def test_asynchronous_use(self):
        for use in range(6):
            if use % 3 == 2:
                got = hvd.synchronize(hvd.allreduce_async(np.ones(3), name="async", op=hvd.Sum))
            else:
                got = hvd.allreduce(np.ones(3), name="async", op=hvd.Sum)
            self.assertEqual(got.tolist(), [SIZE] * 3)

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
                self.assertIn("allreduce.m.5", open_lanes())

    def test_failed_before_it_met_the_others(self):
        """An operation that ended in an exception was not submitted: the next one takes its place."""
        for use in range(9):
            if RANK == 0 and use % 3 == 2:
                fails = mock.patch.object(hvd._InLane, "put", side_effect=MemoryError)
                with fails, self.assertRaises(MemoryError):
                    hvd.allreduce(np.ones(3), name="failed", op=hvd.Sum)
            got = hvd.allreduce(np.full(3, float(use)), name="failed", op=hvd.Sum)
            self.assertEqual(got.tolist(), [use * SIZE] * 3)
            self.assertIn("allreduce.failed", open_lanes())

    def test_threads(self):
        wrong = []

        def each(name):
            for use in range(50):
                if hvd.allreduce(np.array([use]), name=name, op=hvd.Sum).tolist() != [use * SIZE]:
                    wrong.append((name, use))

        threads = [threading.Thread(target=each, args=(f"thread.{i}",)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_zz_join(self):
        """The last one, because there are no lanes after it.

        Rank 0 was interrupted in one: it joins without waiting there for others, who never come.
        """
        for _ in range(3):
            hvd.allreduce(np.ones(2), name="interrupted", op=hvd.Sum)
        if RANK == 0:
            self.assertIn("allreduce.interrupted", open_lanes())
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(KeyboardInterrupt):
                hvd.allreduce(np.ones(2), name="interrupted", op=hvd.Sum)
        for use in range(3 + RANK):
            got = hvd.allreduce(np.ones(2), name="joined", op=hvd.Sum)
            self.assertEqual(got.tolist(), [SIZE if use < 3 else SIZE - (use - 2)] * 2)
        self.assertEqual(hvd.join(), SIZE - 1)
        self.assertEqual(hvd.allreduce(np.ones(2), name="joined", op=hvd.Sum).tolist(), [SIZE] * 2)


if __name__ == "__main__":
    unittest.main()
