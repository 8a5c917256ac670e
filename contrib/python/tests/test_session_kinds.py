"""What the operations that bring their own result do in a world of any size.

The daemon's tests run this module as every rank of a world against a session server and a real engine; run
alone, it is a world of one. All ranks run the same tests in the same order.
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
    ALLTOALL,
    AVERAGE,
    BROADCAST,
    FLOAT32,
    INT32,
    MAX,
    MIN,
    PRODUCT,
    REDUCESCATTER,
    SUM,
)
from gorun.errors import InvalidArgument, Mismatch  # noqa: E402
from gorun.session import Block, Result, Session  # noqa: E402


class TestKinds(unittest.TestCase):
    s: Session

    @classmethod
    def setUpClass(cls) -> None:
        cls.s = Session.connect()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.s.close()

    def block(self, code: str, *values: float) -> Block:
        data = array.array(code, values).tobytes()
        block = self.s.alloc(len(data))
        block.view[:] = data
        return block

    def values(self, code: str, result: Result) -> list[float]:
        assert result.view is not None
        values = list(result.view.cast(code)) if len(result.view) else []
        result.release()
        return values

    def share(self, rows: int) -> range:
        each, more = divmod(rows, self.s.size)
        start = self.s.rank * each + min(self.s.rank, more)
        return range(start, start + each + (self.s.rank < more))

    def test_reducescatter(self) -> None:
        n = self.s.size
        ranks = range(1, n + 1)
        product = 1
        for r in ranks:
            product *= r
        wants = {
            SUM: lambda i: i * sum(ranks),
            AVERAGE: lambda i: i * sum(ranks) / n,
            MIN: lambda i: i,
            MAX: lambda i: i * n,
            PRODUCT: lambda i: product * (i % 2 + 1) ** n,
        }
        for rows in (0, 1, n, 2 * n + 1, 5000):
            mine = self.share(rows)
            for op, want in wants.items():
                values = [
                    ((i % 2 + 1) if op == PRODUCT else i) * (self.s.rank + 1)
                    for i in range(rows)
                    for _ in range(3)
                ]
                src = self.block("f", *values)
                result = self.s.wait(
                    self.s.submit(REDUCESCATTER, f"rs{op}", FLOAT32, (rows, 3), src, None, op=op)
                )
                self.assertEqual(result.shape, (len(mine), 3))
                self.assertEqual(self.values("f", result), [float(want(i)) for i in mine for _ in range(3)])
                self.assertEqual(list(src.view.cast("f")) if values else [], values)
                src.free()

    def test_reducescatter_scales(self) -> None:
        src = self.block("f", *range(10))
        result = self.s.wait(
            self.s.submit(
                REDUCESCATTER, "s", FLOAT32, (10,), src, None, op=AVERAGE, prescale=4.0, postscale=0.5
            )
        )
        self.assertEqual(self.values("f", result), [2.0 * i for i in self.share(10)])

    def test_reducescatter_refused(self) -> None:
        with self.assertRaises(InvalidArgument):
            self.s.wait(self.s.submit(REDUCESCATTER, "scalar", INT32, (), self.block("i", 1), None))
        with self.assertRaises(InvalidArgument):
            block = self.block("i", 1)
            self.s.wait(self.s.submit(BROADCAST, "root", INT32, (1,), block, block, root=self.s.size))
        if self.s.size > 1:
            src = self.block("i", 1, 2, 3)
            with self.assertRaises(Mismatch):
                self.s.wait(
                    self.s.submit(REDUCESCATTER, "wrong", INT32, (3 if self.s.rank else 2,), src, None)
                )

    def test_alltoall(self) -> None:
        me, n = self.s.rank, self.s.size
        for scale in (0, 1, 1000):
            rows = [[scale * (a + 2 * b) % (scale + 3) for b in range(n)] for a in range(n)]
            spare = [7.0] * 2 * scale  # for no handle
            values = [float(100 * me + to) for to in range(n) for _ in range(2 * rows[me][to])]
            src = self.block("f", *values, *spare)
            result = self.s.wait(
                self.s.submit(
                    ALLTOALL, "a2a", FLOAT32, (sum(rows[me]) + scale, 2), src, None, splits=rows[me]
                )
            )
            got = [rows[a][me] for a in range(n)]
            self.assertEqual(result.rows, tuple(got))
            self.assertEqual(result.shape, (sum(got), 2))
            self.assertEqual(
                self.values("f", result), [float(100 * a + me) for a in range(n) for _ in range(2 * got[a])]
            )

    def test_alltoall_without_splits(self) -> None:
        n = self.s.size
        src = self.block("i", *(10 * self.s.rank + i for i in range(n)))
        result = self.s.wait(self.s.submit(ALLTOALL, "even", INT32, (n,), src, None))
        self.assertEqual(result.rows, (1,) * n)
        self.assertEqual(self.values("i", result), [10 * a + self.s.rank for a in range(n)])

    def test_alltoall_refused(self) -> None:
        src = self.block("i", *range(4))
        others = self.s.size - 1
        for splits in ([1] * (others + 2), [5] + [0] * others, [-1] + [1] * others):
            with self.assertRaises(InvalidArgument, msg=str(splits)):
                self.s.wait(self.s.submit(ALLTOALL, "x", INT32, (4,), src, None, splits=splits))
        with self.assertRaises(InvalidArgument):
            self.s.wait(self.s.submit(ALLTOALL, "x", INT32, (), src, None))
        with self.assertRaises(InvalidArgument):
            self.s.submit(REDUCESCATTER, "x", INT32, (4,), src, None, splits=[4])

    def test_groups(self) -> None:
        me, n = self.s.rank, self.s.size
        if n == 1:
            with self.assertRaises(InvalidArgument):
                self.s.add_group([0])
            return
        groups = {}
        for ranks in [[r] for r in range(n)] + [list(range(1, n))] * (n > 2) + [[0, n - 1]] * (n > 2):
            groups[self.s.add_group(ranks[::-1])] = ranks
        self.assertEqual(sorted(groups), list(range(min(groups), min(groups) + len(groups))))
        for group, ranks in groups.items():
            src = self.block("i", me + 1, 5)
            if me not in ranks:
                with self.assertRaises(InvalidArgument):
                    self.s.wait(self.s.submit(ALLREDUCE, "x", INT32, (2,), src, src, group=group))
                continue
            result = self.s.wait(self.s.submit(ALLGATHER, "x", INT32, (2,), src, None, group=group))
            self.assertEqual(self.values("i", result), [v for r in ranks for v in (r + 1, 5)])
            self.s.wait(self.s.submit(ALLREDUCE, "x", INT32, (2,), src, src, group=group))
            self.assertEqual(list(src.view.cast("i")), [sum(r + 1 for r in ranks), 5 * len(ranks)])
        with self.assertRaises(InvalidArgument):
            self.s.add_group(range(n))
        with self.assertRaises(InvalidArgument):
            self.s.add_group([0])
        with self.assertRaises(InvalidArgument):
            self.s.add_group([n])
        for group in groups:
            self.s.remove_group(group)
            with self.assertRaises(InvalidArgument):
                self.s.remove_group(group)
        with self.assertRaises(Mismatch):
            self.s.add_group([me and 1])
        self.assertEqual(self.s.add_group([0]), max(groups) + 1)
        self.s.remove_group(max(groups) + 1)


if __name__ == "__main__":
    unittest.main()
