"""The split of a rank's time, logged to other programs."""

import importlib.util
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from gorun import callbacks
from gorun.counters import Counters

SECOND = 1_000_000_000
NAMES = {
    f"gorun/{name}" for name in ("computing", "data", "communication", "others", "hidden", "step_seconds")
}


class Counted(Counters):
    """Counters that count what a test says."""

    def __init__(self) -> None:
        super().__init__({})
        self.says = dict.fromkeys(super().totals(), 0)

    def totals(self) -> dict[str, int]:
        return dict(self.says)


class TestSplit(unittest.TestCase):
    def setUp(self) -> None:
        self.counted = Counted()
        patch = mock.patch.object(callbacks, "_split", callbacks.Split(self.counted))
        patch.start()
        self.addCleanup(patch.stop)
        counted = {"elapsed": 10, "data": 3, "communication": 2, "others": 1, "hidden": 1}
        self.counted.says.update({name: n * SECOND for name, n in counted.items()}, steps=5)

    def test_shares_are_of_the_time_since_the_last_call(self) -> None:
        split = callbacks.Split(self.counted)
        first = split.take()
        want = {
            "computing": 0.4,
            "data": 0.3,
            "communication": 0.2,
            "others": 0.1,
            "hidden": 0.1,
            "step_seconds": 2,
        }
        self.assertEqual({name: round(value, 6) for name, value in first.items()}, want)
        self.assertEqual(split.take(), {})
        self.counted.says.update(elapsed=11 * SECOND)
        want = {"computing": 1, "data": 0, "communication": 0, "others": 0, "hidden": 0}
        self.assertEqual(split.take(), want)

    def test_a_forked_process_begins_anew(self) -> None:
        split = callbacks.Split(self.counted)
        split.take()
        self.counted.says.update(elapsed=12 * SECOND, data=0)
        self.assertEqual(split.take()["data"], 0)

    def test_summary_writer(self) -> None:
        writer = mock.Mock(spec=["add_scalar"])
        values = callbacks.log_split(writer, 7)
        self.assertEqual(set(values), NAMES)
        want = [mock.call.add_scalar(name, value, 7) for name, value in values.items()]
        self.assertEqual(writer.mock_calls, want)

    def test_weights_and_biases(self) -> None:
        wandb = mock.Mock(spec=["log", "init"])
        values = callbacks.log_split(wandb, 7)
        wandb.log.assert_called_once_with(values, step=7)
        self.assertEqual(set(values), NAMES)

    def test_others(self) -> None:
        mlflow, summary = mock.Mock(spec=["log_metrics"]), mock.Mock(spec=["scalar"])
        values = callbacks.log_split(mlflow, 7, prefix="")
        mlflow.log_metrics.assert_called_once_with(values, step=7)
        self.counted.says.update(elapsed=12 * SECOND)
        callbacks.log_split(summary, 8)
        summary.scalar.assert_any_call("gorun/data", 0.0, step=8)

    def test_nothing_counted(self) -> None:
        self.counted.says.update(elapsed=0)
        writer = mock.Mock(spec=["add_scalar"])
        self.assertEqual(callbacks.log_split(writer), {})
        writer.add_scalar.assert_not_called()

    def test_what_takes_no_values(self) -> None:
        with self.assertRaisesRegex(TypeError, "log_split: list has none of add_scalar"):
            callbacks.log_split([])

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "no Python with TensorFlow and TensorBoard")
    def test_tensorboard_reads_it(self) -> None:
        import tensorflow as tf
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        with tempfile.TemporaryDirectory() as home:
            with tf.summary.create_file_writer(home).as_default():
                callbacks.log_split(tf.summary, 3)
            found: Any = EventAccumulator(str(Path(home)))
            found.Reload()
            self.assertEqual(set(found.Tags()["tensors"]), NAMES)
            self.assertEqual([event.step for event in found.Tensors("gorun/data")], [3])


class TestReal(unittest.TestCase):
    def test_counters_of_a_process(self) -> None:
        counters = Counters({})
        split = callbacks.Split(counters)
        self.assertEqual(split.take(), {})
        for _ in counters.loading(range(3)):
            counters.step()
        taken = split.take()
        self.assertGreater(taken["step_seconds"], 0)
        self.assertAlmostEqual(taken["computing"] + taken["data"], 1)
