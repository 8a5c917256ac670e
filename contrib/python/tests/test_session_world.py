"""What a session does in a world of any size.

The daemon's tests run this module as every rank of a world against a real session server; run alone, it
is a world of one. All ranks run the same tests in the same order.
"""

from __future__ import annotations

import array
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gorun.constants import (  # noqa: E402
    ALLGATHER,
    ALLREDUCE,
    AVERAGE,
    BARRIER,
    FLOAT32,
    FLOAT64,
)
from gorun.errors import GorunError, InvalidArgument, Mismatch, Shutdown  # noqa: E402
from gorun.session import Block, Session, Ticket  # noqa: E402


class TestWorld(unittest.TestCase):
    s: Session

    @classmethod
    def setUpClass(cls) -> None:
        cls.s = Session.connect()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.s.close()
        cls.s.close()
        with_closed = cls("test_place")
        with with_closed.assertRaises(Shutdown):
            cls.s.submit(BARRIER, "late", 0, (), None, None)

    def floats(self, *values: float) -> Block:
        data = array.array("f", values).tobytes()
        block = self.s.alloc(len(data))
        block.view[:] = data
        return block

    def barrier(self, name: str) -> None:
        self.s.wait(self.s.submit(BARRIER, name, 0, (), None, None))

    def test_place(self) -> None:
        self.assertEqual(self.s.size, int(os.environ.get("GORUN_TEST_SIZE", "1")))
        self.assertEqual(self.s.rank, int(os.environ.get("GORUN_PROCESS", "0")))
        self.assertEqual((self.s.local_rank, self.s.local_size), (self.s.rank, self.s.size))
        self.assertEqual((self.s.cross_rank, self.s.cross_size), (0, 1))

    def test_allreduce(self) -> None:
        n = self.s.size
        mine = self.floats(*(i * (self.s.rank + 1) for i in range(1000)))
        before = bytes(mine.view)
        out = self.s.alloc(4000)
        self.s.wait(self.s.submit(ALLREDUCE, "sum", FLOAT32, (10, 100), mine, out))
        self.assertEqual(list(out.view.cast("f")), [i * n * (n + 1) / 2 for i in range(1000)])
        self.assertEqual(bytes(mine.view), before)
        result = self.s.wait(
            self.s.submit(ALLREDUCE, "avg", FLOAT32, (1000,), mine, mine, op=AVERAGE, postscale=2.0)
        )
        self.assertEqual(list(mine.view.cast("f")), [i * (n + 1) for i in range(1000)])
        self.assertIsNone(result.view)
        mine.free()
        out.free()

    def test_empty(self) -> None:
        empty = self.s.alloc(0)
        self.s.wait(self.s.submit(ALLREDUCE, "empty", FLOAT32, (0, 3), empty, empty))
        self.s.wait(self.s.submit(ALLREDUCE, "none", FLOAT32, (0,), None, None))

    def test_allgather(self) -> None:
        rows = self.s.rank + 1
        src = self.floats(*([self.s.rank] * rows * 2))
        want = [float(r) for r in range(self.s.size) for _ in range((r + 1) * 2)]
        for round_ in range(20):
            result = self.s.wait(self.s.submit(ALLGATHER, "g", FLOAT32, (rows, 2), src, None))
            view = result.view
            assert view is not None
            self.assertEqual(list(view.cast("f")), want, f"round {round_}")
            self.assertEqual(result.rows, tuple(range(1, self.s.size + 1)))
            self.assertEqual(result.shape, (sum(result.rows), 2))
            with self.assertRaises(TypeError):
                view[0] = 1
            result.release()
            result.release()

    def test_invalid_arguments(self) -> None:
        block = self.floats(1, 2)
        for kind, name, dtype, shape, src, dst in (
            (99, "x", FLOAT32, (2,), block, block),
            (ALLREDUCE, "", FLOAT32, (2,), block, block),
            (ALLREDUCE, "x" * 5000, FLOAT32, (2,), block, block),
            (ALLREDUCE, "x", 99, (2,), block, block),
            (ALLREDUCE, "x", FLOAT32, (3,), block, block),
            (ALLREDUCE, "x", FLOAT32, (-2,), block, block),
            (ALLREDUCE, "x", FLOAT32, (1,) * 33, block, block),
            (ALLREDUCE, "x", FLOAT32, (2,), None, block),
            (ALLREDUCE, "x", FLOAT32, (2,), block, None),
            (ALLGATHER, "x", FLOAT32, (2,), block, block),
            (BARRIER, "x", FLOAT32, (2,), block, None),
        ):
            with self.assertRaises(InvalidArgument, msg=str((kind, name, dtype, shape))):
                self.s.submit(kind, name, dtype, shape, src, dst)
        with self.assertRaises(InvalidArgument):
            h = Ticket()
            h[0] = 123456789
            self.s.wait(h)
        with self.assertRaises(ValueError):
            self.s.alloc(-1)

    def test_mismatch(self) -> None:
        if self.s.size == 1:
            return
        dtype = FLOAT64 if self.s.rank == 0 else FLOAT32
        block = self.s.alloc(16)
        shape = (2,) if self.s.rank == 0 else (4,)
        with self.assertRaisesRegex(Mismatch, "disagree about wrong"):
            self.s.wait(self.s.submit(ALLREDUCE, "wrong", dtype, shape, block, block))
        self.barrier("goes on")

    def test_memory_limit(self) -> None:
        if self.s.size == 1:
            return
        with self.assertRaises(MemoryError):
            self.s.alloc(1 << 50)
        self.s.alloc(100 << 20).free()

    def test_fork(self) -> None:
        if self.s.size == 1:
            return
        pid = os.fork()
        if pid == 0:
            try:
                self.s.submit(BARRIER, "child", 0, (), None, None)
            except GorunError as e:
                self.s.close()
                os._exit(0 if "fork" in str(e) else 2)
            os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.barrier("parent goes on")
