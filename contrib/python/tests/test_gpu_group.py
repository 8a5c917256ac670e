"""Collectives on memory of GPUs: all ranks of a process over the stand-ins for libcuda and libnccl."""

import threading
import time
import unittest
from unittest import mock

import standin_gpu
from standin_gpu import faults
from tests_path import need

np = need("numpy")

from fake import run_ranks  # noqa: E402

import gorun.numpy as hvd  # noqa: E402
from gorun import basics, collectives, constants, errors  # noqa: E402
from gorun.exceptions import HorovodInternalError  # noqa: E402
from gorun.gpu import calls, driver, group, nccl  # noqa: E402


def setUpModule():
    standin_gpu.libraries()


class Rank:
    """One rank's device, with memory of it that holds arrays."""

    def __init__(self, rank, **options):
        self.device = driver.Device(standin_gpu.driver(), rank)
        self.stream = driver.Stream(self.device)
        self.group = group.Group(basics.world(), self.device, standin_gpu.nccl(), **options)

    def array(self, values, dtype="f4"):
        return standin_gpu.array(self.device, values, dtype)

    def sum(self, name, values, op=constants.SUM):
        """Start an allreduce in place; return its work and its memory."""
        array, address = self.array(values)
        handle = self.stream.handle
        name = f"allreduce.{name}"
        return self.group.allreduce(name, address, address, array.size, "float32", op, handle), array


def ranks(size, body, **options):
    """Run body(rank, its number) on every rank."""
    return run_ranks(size, lambda number: body(Rank(number, **options), number))


class OperationsTest(unittest.TestCase):
    def test_reductions(self):
        def body(rank, number):
            results = []
            ops = constants.SUM, constants.AVERAGE, constants.MIN, constants.MAX, constants.PRODUCT
            for op in ops:
                work, array = rank.sum(f"x{op}", [number + 1, 3 * number], op)
                self.assertTrue(work.wait())
                results.append(array.tolist())
            return results

        self.assertEqual(ranks(3, body), [[[6, 9], [2, 3], [1, 0], [3, 6], [6, 0]]] * 3)

    def test_types(self):
        names = {"int8": "i1", "uint8": "u1", "int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8",
                 "float16": "f2", "float32": "f4", "float64": "f8", "bfloat16": "u2"}  # fmt: skip
        self.assertEqual(names.keys(), nccl.DATA_TYPES.keys())

        def body(rank, number):
            for name, dtype in names.items():
                array, address = rank.array([0x3F80, 0] if name == "bfloat16" else [3, number], dtype)
                self.assertEqual(calls.itemsize(name), array.itemsize)
                rank.group.allreduce(
                    name, address, address, 2, name, constants.SUM, rank.stream.handle
                ).wait()
                self.assertEqual(array.tolist(), [0x4000, 0] if name == "bfloat16" else [6, 1], name)

        ranks(2, body)

    def test_others(self):
        def body(rank, number):
            array, address = rank.array([number + 1, 10, 20])
            out, target = rank.array([0] * 6)
            g, stream = rank.group, rank.stream.handle
            results = []

            def ended(work):
                self.assertTrue(work.wait())
                results.append(out.tolist())
                out[...] = 0

            ended(g.broadcast("b", address, target, 3, "float32", 1, stream))
            ended(g.allgather("g", address, target, 3, "float32", stream))
            both, source = rank.array([1, 2, 3, 4])
            ended(g.reducescatter("s", source, target, 2, "float32", constants.SUM, stream))
            sent, received = ([1, 2], [1, 2]) if number == 0 else ([2, 1], [2, 1])
            ended(g.alltoall("a", address, target, sent, received, "float32", stream))
            return results

        self.assertEqual(ranks(2, body), [
            [[2, 10, 20, 0, 0, 0], [1, 10, 20, 2, 10, 20], [2, 4, 0, 0, 0, 0], [1, 2, 10, 0, 0, 0]],
            [[2, 10, 20, 0, 0, 0], [1, 10, 20, 2, 10, 20], [6, 8, 0, 0, 0, 0], [10, 20, 20, 0, 0, 0]],
        ])  # fmt: skip

    def test_any_order(self):
        """Each rank calls eight operations in an order of its own, and waits in another one."""

        def body(rank, number):
            order = np.random.RandomState(number).permutation(8)
            works = {int(i): rank.sum(f"t{i}", [i * 10 + number] * 100) for i in order}
            for i in sorted(works, reverse=bool(number % 2)):
                work, array = works[i]
                self.assertTrue(work.wait())
                self.assertEqual(set(array.tolist()), {i * 30 + 3})

        ranks(3, body)

    def test_one_waits_before_it_calls_the_next(self):
        def body(rank, number):
            first, second = ("a", "b") if number else ("b", "a")
            work, _ = rank.sum(first, [1])
            if number == 0:  # calls both, and rank 1 calls b once it has a
                other, _ = rank.sum(second, [1])
                return work.wait(), other.wait()
            return work.wait(), rank.sum(second, [1])[0].wait()

        self.assertEqual(ranks(2, body), [(True, True)] * 2)

    def test_follows_the_stream_of_the_caller(self):
        launched = threading.Barrier(2)

        def body(rank, number):
            host = np.full(4, number + 1, "f4")
            array, address = rank.array([0] * 4)
            rank.stream.copy(address, host.ctypes.data, host.nbytes)
            work = rank.group.allreduce(
                "x", address, address, 4, "float32", constants.SUM, rank.stream.handle
            )
            while not rank.group._running:
                time.sleep(0.001)
            launched.wait()
            self.assertFalse(work.over())
            launched.wait()  # until both have looked
            make(hold=None) if number == 0 else None
            work.wait()
            return array.tolist()

        with faults(hold="") as make:
            self.assertEqual(ranks(2, body), [[3] * 4] * 2)

    def test_one_rank(self):
        def body(rank, number):
            work, array = rank.sum("x", [5])
            return work.wait(), array.tolist()

        self.assertEqual(ranks(1, body), [(True, [5])])


class RefusalsTest(unittest.TestCase):
    def test_different_arguments(self):
        def body(rank, number):
            work, _ = rank.sum("x", [1] * (number + 1))
            with self.assertRaisesRegex(HorovodInternalError, "different root"):
                work.wait()
            work, array = rank.sum("x", [1])  # the group goes on
            return work.wait(), array.tolist()

        self.assertEqual(ranks(2, body), [(True, [2])] * 2)

    def test_one_rank_on_the_host(self):
        """A rank whose tensor lies in host memory gets an error, as the others do, instead of a hang."""

        def body(rank, number):
            with self.assertRaisesRegex(HorovodInternalError, "different"):
                if number == 0:
                    rank.sum("x", [1])[0].wait()
                else:
                    hvd.allreduce(np.ones(3, "f4"), name="x", op=collectives.Sum)

        ranks(2, body)

    def test_same_name_before_it_was_waited_for(self):
        """A name is in flight until a wait for it, although all ranks have called it already."""

        def body(rank, number):
            first, _ = rank.sum("x", [1])
            while not rank.group._ready and not rank.group._running and not first.here:
                time.sleep(0.001)
            with self.assertRaisesRegex(ValueError, "same name"):
                rank.sum("x", [1])
            first.wait()
            second, array = rank.sum("x", [1])
            return second.wait(), array.tolist()

        self.assertEqual(ranks(2, body), [(True, [2])] * 2)

    def test_one_device_for_two_ranks(self):
        def body(_):
            work, _ = Rank(0).sum("x", [1])
            with self.assertRaisesRegex(HorovodInternalError, "invalid usage"):
                work.wait()

        run_ranks(2, body)


class LossTest(unittest.TestCase):
    """What goes wrong while an operation runs: the error comes soon, and nothing hangs."""

    def losing(self, fault, cause, silence=600.0):
        """Return what the two ranks raise after a fault of NCCL and a cause, and how soon."""
        both = threading.Barrier(2)

        def body(rank, number):
            rank.sum("before", [1])[0].wait()
            rank.group._silence = silence  # only now: a busy machine may take longer to set up
            if both.wait() == 0:
                make(**fault)
            both.wait()
            work, _ = rank.sum("x", [1])
            while not rank.group._running and not rank.group.failure:
                time.sleep(0.001)
            cause(number)
            since = time.monotonic()
            with self.assertRaises(HorovodInternalError) as raised:
                work.wait()
            took = time.monotonic() - since
            with self.assertRaisesRegex(HorovodInternalError, "has ended"):
                rank.sum("again", [1])
            return str(raised.exception), took

        with faults() as make:
            return ranks(2, body)

    def test_asynchronous_error(self):
        for text, _ in self.losing({"asyncerror": 6}, lambda number: None):
            self.assertIn("allreduce.x on the GPU: NCCL: remote process exited", text)

    def test_world_ends_while_nccl_hangs(self):
        def cause(number):
            basics.world().session.engine.lost = errors.Aborted("host2 is lost")

        for text, took in self.losing({"hang": ""}, cause):
            self.assertIn("host2 is lost", text)
            self.assertLess(took, 5)  # a fifth of a second, on a machine at rest

    def test_rank_leaves_while_nccl_hangs(self):
        (first, took), (second, _) = self.losing(
            {"hang": ""}, lambda number: basics.shutdown() if number == 1 else None
        )
        self.assertRegex(first, "rank.* left")
        self.assertLess(took, 5)
        self.assertIn("left the world", second)

    def test_silence(self):
        for text, _ in self.losing({"hang": ""}, lambda number: None, silence=0.3):
            self.assertIn("silent for 0.3 s", text)

    def test_set_up_hangs(self):
        def body(rank, number):
            work, _ = rank.sum("x", [1])
            basics.world().session.engine.lost = errors.Aborted("host2 is lost")
            with self.assertRaisesRegex(HorovodInternalError, "host2 is lost"):
                work.wait()

        with faults(hanginit=""):
            ranks(2, body)

    def test_rank_leaves_while_the_set_up_hangs(self):
        def body(rank, number):
            work, _ = rank.sum("x", [1])
            while not rank.group._comm:
                time.sleep(0.001)
            both.wait()
            if number == 1:
                basics.shutdown()
            with self.assertRaisesRegex(HorovodInternalError, "left"):
                work.wait()

        both = threading.Barrier(2)
        with faults(hanginit=""):
            ranks(2, body)

    def test_watch_begins_again(self):
        """The watch ends without an error when all others join; the next operation has another one."""

        def body(rank, number):
            rank.sum("before", [1])[0].wait()
            first, rank.group._watch = rank.group._watch, None
            self.assertIsNotNone(first)
            with mock.patch.object(rank.group, "_begin_watch", return_value=first) as begun:
                rank.sum("after", [1])[0].wait()
            self.assertEqual(begun.call_count, 1)
            both.wait()

        both = threading.Barrier(2)
        ranks(2, body)

    def test_thread_cannot_begin(self):
        """Whatever the thread fails at, callers get the reason."""

        def body(rank, number):
            with self.assertRaisesRegex(HorovodInternalError, "no context"):
                rank.sum("x", [1])[0].wait()

        failed = driver.Failed("cuThreadExchangeStreamCaptureMode", 201, "no context")
        with mock.patch.object(driver.Driver, "relax", side_effect=failed):
            ranks(1, body)

    def test_next_world(self):
        """After a loss the same processes go on in the next world, with a communicator of its own."""

        all_have_it = threading.Barrier(3)

        def body(rank, number):
            rank.sum("x", [1])[0].wait()
            all_have_it.wait()
            basics.world().session.engine.lost = errors.Aborted("host2 is lost")
            with self.assertRaises(HorovodInternalError):
                while True:
                    rank.sum("y", [1])[0].wait()
            return True

        def next_body(rank, number):
            work, array = rank.sum("x", [number])
            return work.wait(), array.tolist()

        self.assertEqual(ranks(3, body), [True] * 3)
        self.assertEqual(ranks(2, next_body), [(True, [1])] * 2)


class JoinTest(unittest.TestCase):
    def test_left_to_the_host(self):
        """Where a rank has joined the sum of ones is less than the world's size: all leave it to the host."""

        def body(rank, number):
            real = basics.world().synchronize

            def synchronize(handle):
                value = real(handle)
                return [value[0] - 1] if isinstance(value, list) else value

            world = basics.world()
            with mock.patch.object(world, "synchronize", synchronize):
                work, array = rank.sum("x", [7])
                return work.wait(), array.tolist()

        self.assertEqual(ranks(2, body), [(False, [7])] * 2)
