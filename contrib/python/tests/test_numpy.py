"""gorun.numpy."""

import os
import unittest

from tests_path import need

np = need("numpy")

from fake import run_ranks  # noqa: E402

import gorun.numpy as hvd  # noqa: E402
from gorun import basics  # noqa: E402


class NumpyTest(unittest.TestCase):
    def each(self, function):
        for size in (1, 2, 4):
            with self.subTest(size=size):
                run_ranks(size, lambda rank, size=size: function(rank, size))

    def test_allreduce(self):
        def body(rank, size):
            for dtype in ("i4", "i8", "f2", "f4", "f8", ">f8"):
                mine = (np.arange(12, dtype=dtype) * (rank + 1)).reshape(3, 4)
                total = sum((np.arange(12, dtype=dtype) * (r + 1)).reshape(3, 4) for r in range(size))
                got = hvd.allreduce(mine, op=hvd.Sum)
                assert got.dtype == np.dtype(dtype).newbyteorder("=") and np.array_equal(got, total)
            assert np.allclose(hvd.allreduce(mine.T[::2]), total.T[::2] / size)
            assert hvd.allreduce(float(rank), op=hvd.Max) == size - 1
            assert hvd.allreduce_(mine, op=hvd.Sum) is mine and np.array_equal(mine, total)
            big = np.zeros((2, 3), ">i4") + rank
            assert np.array_equal(hvd.allreduce_(big, op=hvd.Sum), np.full((2, 3), size * (size - 1) // 2))
            assert hvd.allreduce(np.zeros((0, 2))).shape == (0, 2)

        self.each(body)

    def test_grouped(self):
        def body(rank, size):
            arrays = [np.full(3, rank, "f4"), np.full((2, 2), rank, "f8"), np.full(1, rank, "f4")]
            total = size * (size - 1) / 2
            for got, mine in zip(hvd.grouped_allreduce(arrays, op=hvd.Sum), arrays):
                assert got.dtype == mine.dtype and np.array_equal(got, np.full(mine.shape, total))
            hvd.grouped_allreduce_(arrays, op=hvd.Sum)
            assert all((a == total).all() for a in arrays)
            swapped = [np.full(2, rank, ">f4"), np.full((0, 1), rank, ">f4"), np.full(2, rank, ">f4")[::-1]]
            for got, mine in zip(hvd.grouped_allreduce(swapped, op=hvd.Sum), swapped):
                assert got.dtype == np.float32 and np.array_equal(got, np.full(mine.shape, total))

            rows = [np.full((rank, 2), rank, "f4"), np.arange(3) + rank]
            for got, mine, n in zip(hvd.grouped_allgather(rows), rows, (1, 3)):
                want = [np.full((r, 2), r) if n == 1 else np.arange(3) + r for r in range(size)]
                assert got.dtype == mine.dtype and np.array_equal(got, np.concatenate(want))
            wholes = [np.arange(size + 1.0), np.ones((2 * size, 3), "i4")]
            handle = hvd.grouped_reducescatter_async(wholes, "scattered", hvd.Sum, prescale_factor=2)
            for got, whole in zip(hvd.synchronize(handle), wholes):
                want = np.array_split(2 * size * whole, size)[rank]
                assert got.dtype == whole.dtype and np.array_equal(got, want)
            (got,) = hvd.grouped_reducescatter([np.ones(size)], name="scattered")
            assert got.tolist() == [1.0]
            for grouped in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
                assert grouped([]) == []

        self.each(body)

    def test_moving(self):
        def body(rank, size):
            got = hvd.allgather(np.full((rank, 2), rank, "i2"))
            assert np.array_equal(got, np.concatenate([np.full((r, 2), r, "i2") for r in range(size)]))
            got[...] = 0  # a result is the caller's own
            assert np.array_equal(hvd.broadcast(np.array([rank, -rank]), size - 1), [size - 1, 1 - size])
            mine = np.array([[rank]])
            assert hvd.broadcast_(mine, 0) is mine and mine[0, 0] == 0
            got, received = hvd.alltoall(np.repeat(np.arange(size), 2) * 10 + rank, [2] * size)
            assert received.tolist() == [2] * size
            assert got.tolist() == [rank * 10 + r for r in range(size) for _ in range(2)]
            part = hvd.reducescatter(np.arange(size + 1.0), op=hvd.Sum)
            assert np.array_equal(part, np.array_split(np.arange(size + 1.0) * size, size)[rank])
            hvd.barrier()
            assert hvd.allgather_object(rank) == list(range(size))
            assert hvd.broadcast_object([rank], size - 1) == [size - 1]

        self.each(body)

    def test_errors(self):
        def body(rank):
            with self.assertRaises(ValueError):
                hvd.allreduce(np.array(["a"]))
            with self.assertRaises(hvd.HorovodInternalError):
                hvd.allreduce(np.ones(rank + 1))
            assert hvd.allreduce(1.0) == 1.0

        run_ranks(2, body)

    def test_a_fork_knows_where_it_stands_and_does_not_end_the_session(self):
        def body(rank):
            engine = basics.world().session.engine
            child = os.fork()
            if child == 0:
                knows = hvd.rank() == 0 and hvd.size() == 1
                hvd.shutdown()
                os._exit(0 if knows and not engine.gone else 1)  # the engine was copied with the process
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            assert hvd.allreduce(1.0) == 1.0

        run_ranks(1, body)


class AbandonedTest(unittest.TestCase):
    def test_one_that_fails_keeps_the_others(self):
        """What nobody waits for is released when it has ended or failed; Ctrl-C forgets none of it."""

        class Operation:
            def __init__(self, over):
                self.answer, self.released = over, False

            def over(self):
                if isinstance(self.answer, BaseException):
                    raise self.answer
                return self.answer

            def release(self):
                self.released = True

        def body(rank):
            world = basics.world()
            some = [Operation(over) for over in (False, True, RuntimeError("device lost"), False)]
            for operation in some:
                world.abandon(operation)
            self.assertEqual([operation.released for operation in some], [False, True, True, False])
            interrupted = Operation(KeyboardInterrupt())
            with self.assertRaises(KeyboardInterrupt):
                world.abandon(interrupted)
            for operation in (some[0], some[3], interrupted):
                operation.answer = True
            hvd.allreduce(np.ones(2))
            self.assertTrue(all(operation.released for operation in [*some, interrupted]))

        run_ranks(1, body)
