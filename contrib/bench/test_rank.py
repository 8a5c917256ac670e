"""Tests of what a rank computes from its clock."""

import unittest
from typing import Callable
from unittest import mock

try:
    import rank
except ImportError as error:
    raise unittest.SkipTest(f"what a rank measures: {error}") from None


class Alone(rank.Ranks):
    """The only rank of a library that reduces nothing."""

    rank, size = 0, 1

    def largest(self, tensor: object) -> None:
        pass

    def barrier(self) -> None:
        pass


class Test(unittest.TestCase):
    def test_own_cost_of_a_gradient_is_what_a_step_takes_longer_with_the_library(self) -> None:
        now = 0.0
        clear = rank.Model.clear

        def work(seconds: float) -> None:
            nonlocal now
            now += seconds

        def cleared(model: rank.Model) -> None:
            work(0.03)  # with any library
            clear(model)

        def model_of(model: rank.Model) -> Callable[[], None]:
            def backward() -> None:
                model.clear()
                model().backward()
                work(0.02)  # of this one

            return backward

        with (
            mock.patch.object(rank.time, "perf_counter", lambda: now),
            mock.patch.object(rank.Model, "clear", cleared),
        ):
            whole, own = rank.many_gradients(Alone(), model_of, 0.1)
        self.assertEqual((whole["size"], whole["wrong"]), (4 * rank.MANY, 0))
        self.assertAlmostEqual(whole["p50_us"], 50_000)
        self.assertEqual((own["size"], own["wrong"]), (rank.OWN, 0))
        self.assertAlmostEqual(own["p50_us"], 20_000 / rank.MANY)

    def test_a_step_that_waits_is_measured_with_the_library_and_without(self) -> None:
        slept: list[float] = []

        def model_of(model: rank.Model) -> Callable[[], None]:
            def backward() -> None:
                model.clear()
                model().backward()

            return backward

        weights = [rank.torch.nn.Parameter(rank.torch.zeros(2)) for _ in range(rank.LAYER + 1)]
        with (
            mock.patch.object(rank, "resnet50", lambda: weights),
            mock.patch.object(rank.time, "sleep", slept.append),
        ):
            rows = rank.overlap(Alone(), model_of, 0.001)
        self.assertEqual([row["size"] for row in rows], list(rank.OVERLAP_ROWS))
        self.assertEqual([row["wrong"] for row in rows], [0] * 4)
        self.assertEqual(set(slept), {rank.PAUSE})
        self.assertEqual(len(slept) % len(weights), 0)  # once before each parameter

    def test_many_sums_are_checked_and_timed_in_three_ways(self) -> None:
        calls: list[str] = []

        class Doubling(Alone):
            """A library whose two ranks have the same but for a factor of 1 and 2."""

            size = 2

            def start(self, tensor: rank.torch.Tensor, name: str) -> Callable[[], object]:
                calls.append("start")
                return lambda: tensor.mul_(3)

            def sum(self, tensor: rank.torch.Tensor) -> None:
                tensor.mul_(3)

            def group(self, tensors: list[rank.torch.Tensor]) -> Callable[[], object]:
                def run() -> None:
                    calls.append("group")
                    for tensor in tensors:
                        tensor.mul_(3)

                return run

        rows = rank.many(Doubling(), 0.001)
        self.assertEqual([row["size"] for row in rows], [4 * rank.MANY, "as a group", "one by one"])
        self.assertEqual([row["wrong"] for row in rows], [0, 0, 0])
        self.assertEqual(set(calls), {"start", "group"})

        with mock.patch.object(Doubling, "start", lambda self, tensor, name: lambda: None):
            wrong = rank.many(Doubling(), 0.001)[0]["wrong"]
        self.assertEqual(wrong, 2 * sum(i % rank.PERIOD != 0 for i in range(rank.MANY)))


if __name__ == "__main__":
    unittest.main()
