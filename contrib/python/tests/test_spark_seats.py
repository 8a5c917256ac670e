"""Where the tasks of a Spark stage sit, and what becomes of their outcomes: gorun.spark, without Spark."""

import pickle
import sys
import threading
import types
import unittest

spark = types.ModuleType("pyspark")
spark.BarrierTaskContext = spark.InheritableThread = spark.SparkContext = None
sys.modules.setdefault("pyspark", spark)  # where it is not installed

from gorun.exceptions import HorovodInternalError  # noqa: E402
from gorun.spark import outcome, task  # noqa: E402

if sys.modules["pyspark"] is spark:
    del sys.modules["pyspark"]


class SparkTest(unittest.TestCase):
    def test_seats(self):
        machines = ["a 1", "b 1", "a 1", "a 2", "b 1"]
        seats = [task.seat(machines, partition) for partition in range(5)]
        self.assertEqual([seat.host for seat in seats], ["a", "b", "a", "a-2", "b"])
        self.assertEqual([seat.index for seat in seats], [0, 0, 1, 0, 1])
        self.assertEqual([seat.leads for seat in seats], [True, True, False, True, False])
        self.assertEqual({seat.hosts for seat in seats}, {"a:2,b:2,a-2:1"})

    def test_results(self):
        found = [outcome.Outcome(rank, "a", rank * 10) for rank in (2, 0, 1)]
        self.assertEqual(outcome.results([pickle.loads(outcome.dump(o)) for o in found]), [0, 10, 20])

    def test_the_cause(self):
        found = [self.raised(0, HorovodInternalError("rank 1 left")), self.raised(1, KeyError("k"))]
        with self.assertRaisesRegex(RuntimeError, "^run: rank 1 on host1: KeyError: 'k'\nTraceback"):
            outcome.results(found)
        with self.assertRaisesRegex(RuntimeError, "^run: rank 0 on host0: HorovodInternalError: rank 1 left"):
            outcome.results(found[:1])

    def test_a_job_that_did_not_start(self):
        never = outcome.Outcome(-1, "a", error="no rank came")
        with self.assertRaisesRegex(RuntimeError, "^run: no rank came$"):
            outcome.results([never])
        with self.assertRaisesRegex(RuntimeError, "^run: b: no gorun$"):
            outcome.results([never, outcome.Outcome(-1, "b", error="no rank came", job="b: no gorun")])
        late = outcome.Outcome(-1, "a", error="no rank came", job="b is not there after 60 s")
        with self.assertRaisesRegex(RuntimeError, "^run: b: no gorun$"):
            outcome.results([late, outcome.Outcome(-1, "b", error="no rank came", daemon="b: no gorun")])

    def test_a_result_that_cannot_be_sent(self):
        lost = pickle.loads(outcome.dump(outcome.Outcome(3, "a", threading.Lock())))
        self.assertEqual((lost.rank, lost.result), (3, None))
        self.assertRegex(lost.error, "pickle")

    def raised(self, rank, error):
        try:
            raise error
        except Exception as caught:
            return outcome.failed(rank, f"host{rank}", caught)


if __name__ == "__main__":
    unittest.main()
