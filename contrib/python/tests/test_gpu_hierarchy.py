"""Allreduces by NCCL within hosts and gorun between them: all ranks of a process over the stand-ins."""

import threading
import time
import unittest
from unittest import mock

import standin_gpu
from standin_gpu import faults
from tests_path import need

np = need("numpy")

from fake import run_ranks  # noqa: E402

from gorun import basics, constants, errors  # noqa: E402
from gorun.exceptions import HorovodInternalError  # noqa: E402
from gorun.gpu import driver, group, hierarchy, shares  # noqa: E402


def setUpModule():
    standin_gpu.libraries()


def ranks(hosts, body):
    """Run body(hierarchy, rank) on every rank of hosts, each a list of ranks."""

    def run(rank):
        device = driver.Device(standin_gpu.driver(), rank)
        return body(hierarchy.Hierarchy(basics.world(), device, hosts, standin_gpu.nccl()), rank)

    return run_ranks(sum(map(len, hosts)), run)


def start(tree, name, values, op=constants.SUM, dtype="f4"):
    """Start an allreduce in place; return its work and its memory."""
    array, address = standin_gpu.array(tree.device, values, dtype)
    kind = {"f4": "float32", "i4": "int32"}[dtype]
    return tree.allreduce(f"allreduce.{name}", address, address, array.size, kind, op, 0), array


class SumsTest(unittest.TestCase):
    def test_reductions(self):
        def body(tree, rank):
            got = []
            for op in (constants.SUM, constants.AVERAGE, constants.MIN, constants.MAX, constants.PRODUCT):
                work, array = start(tree, f"x{op}", [rank + 1, 2, rank], op)
                self.assertTrue(work.wait())
                got.append(array.tolist())
            return got

        want = [[10, 8, 6], [2.5, 2, 1.5], [1, 2, 0], [4, 2, 3], [24, 16, 0]]
        self.assertEqual(ranks([[0, 1], [2, 3]], body), [want] * 4)

    def test_hosts_and_sizes(self):
        for hosts in ([[0, 1, 2]], [[0], [1], [2]], [[0, 2], [1, 3]]):
            size = sum(map(len, hosts))

            def body(tree, rank, size=size, hosts=hosts):
                for count in (1, 2, 3, 5, 1000, 70001):
                    work, array = start(tree, f"c{count}", np.arange(count) + rank, dtype="i4")
                    self.assertTrue(work.wait())
                    want = np.arange(count) * size + sum(range(size))
                    self.assertTrue(np.array_equal(array, want), (hosts, count))

            with self.subTest(hosts=hosts), mock.patch.object(shares, "CHUNK_BYTES", 16 << 10):
                ranks(hosts, body)

    def test_several_under_way_in_any_order(self):
        def body(tree, rank):
            order = np.random.RandomState(rank).permutation(6)
            works = {int(i): start(tree, f"t{i}", [i + rank] * 50) for i in order}
            for i in reversed(order):
                work, array = works[int(i)]
                self.assertTrue(work.wait())
                self.assertEqual(set(array.tolist()), {4 * i + 6})

        ranks([[0, 1], [2, 3]], body)

    def test_same_name_twice(self):
        def body(tree, rank):
            work, _ = start(tree, "x", [rank])
            with self.assertRaisesRegex(ValueError, "same name"):
                start(tree, "x", [rank])
            self.assertTrue(work.wait())
            work, array = start(tree, "x", [rank])  # whose memory is one that was given back
            self.assertTrue(work.wait())
            self.assertEqual(len(tree._all), 2)
            return array.tolist()

        self.assertEqual(ranks([[0, 1], [2, 3]], body), [[6]] * 4)

    def test_no_memory_that_can_be_pinned(self):
        def body(tree, rank):
            work, array = start(tree, "x", [rank] * 9)
            return work.wait(), set(array.tolist())

        with faults(nopin=""):
            self.assertEqual(ranks([[0, 1], [2, 3]], body), [(True, {6})] * 4)

    def test_while_another_thread_captures(self):
        """What it does itself ends no capture: the script's thread neither, which waits."""
        both = threading.Barrier(2)

        def body(tree, rank):
            array = np.full(9, rank + 1, "f4")
            both.wait()
            with mock.patch.object(shares, "CHUNK_BYTES", 16):
                address = array.ctypes.data
                work = tree.allreduce("x", address, address, 9, "float32", constants.SUM, 0)
                self.assertTrue(work.wait())
            both.wait()  # closing a world is not part of it
            if rank == 0:
                make(elsewhere=None)
            both.wait()
            return set(array.tolist())

        with faults(elsewhere="") as make:
            self.assertEqual(ranks([[0], [1]], body), [{3.0}] * 2)

    def test_left_to_the_host(self):
        def leave(group, work, sums):
            work.left_to_host()

        with mock.patch.object(group.Group, "_answered", leave):
            got = ranks([[0], [1]], lambda tree, rank: start(tree, "x", [1])[0].wait())
        self.assertEqual(got, [False] * 2)


class SharesTest(unittest.TestCase):
    def test_memory_of_chunks_that_nobody_waits_for(self):
        """It is freed when the engine is done with it, and not when an error ends the sum."""
        given_up, finished = threading.Event(), threading.Event()

        def body(rank):
            world, device = basics.world(), driver.Device(standin_gpu.driver(), rank)
            array = np.ones(8, "f4")
            mine = shares.Shares(world, device, [0, 1])
            steps = mine.reduce("x", "float32", constants.SUM, array.ctypes.data, 8)
            if rank == 1:
                given_up.wait(20)
                for awaited in steps:
                    while not awaited.over():
                        time.sleep(0.001)
                finished.set()
                mine.close()
                return array.tolist()
            blocks = []

            def alloc(nbytes):
                blocks.append(world.session.alloc(nbytes))
                return blocks[-1]

            with mock.patch.object(world, "alloc", alloc):
                while isinstance(awaited := next(steps), driver.Event):
                    awaited.synchronize()
                steps.close()
            self.assertEqual(len(blocks), 1)
            blocks[0].home()  # ValueError if it is free
            given_up.set()
            finished.wait(20)
            world._sweep()
            with self.assertRaisesRegex(ValueError, "the block is free"):
                blocks[0].home()
            mine.close()
            return None

        with mock.patch.object(shares, "CHUNK_BYTES", 16):
            self.assertEqual(run_ranks(2, body), [None, [2.0] * 8])


class LossTest(unittest.TestCase):
    def test_world_ends(self):
        """Whichever step is under way, the error comes and nothing hangs."""
        for fault in ({"hang": ""}, {}):
            both = threading.Barrier(4)

            def body(tree, rank, fault=fault, both=both):
                start(tree, "before", [1])[0].wait()
                if both.wait() == 0:
                    make(**fault)
                both.wait()
                if rank == 3 and not fault:
                    work = None  # it never comes: the others wait for it
                else:
                    work, _ = start(tree, "x", [1] * 100)
                basics.world().session.engine.lost = errors.Aborted("host2 is lost")
                if work is None:
                    return
                with self.assertRaisesRegex(HorovodInternalError, "host2 is lost|left"):
                    work.wait()

            with self.subTest(fault=fault), faults() as make:
                ranks([[0, 1], [2, 3]], body)
