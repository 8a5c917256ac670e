"""Worlds that fail again and again: what is tried again, and what the user reads."""

import io
import os
import unittest
from contextlib import redirect_stderr
from unittest import mock

from tests_path import need

np = need("numpy")

from fake import run_ranks  # noqa: E402

import gorun.numpy as hvd  # noqa: E402
from gorun import basics, elastic, errors  # noqa: E402
from gorun.exceptions import HorovodInternalError  # noqa: E402
from gorun.objects import broadcast_object  # noqa: E402


def caused(cause):
    """Return what a failed operation raises."""
    failure = HorovodInternalError(str(cause))
    failure.__cause__ = cause
    return failure


class FailuresTest(unittest.TestCase):
    def train(self, worlds):
        """Fail in each world: True commits first. Return pauses, lines, worlds, and the end."""
        pauses, said, left = [], io.StringIO(), list(worlds)

        def body(rank):
            def train(state):
                for event in left.pop(0):
                    if event is True:
                        state.commit()
                    else:
                        raise event
                return "done"

            elastic.run(train)(elastic.ObjectState(broadcast_object, basics.rank, step=0))

        environ = mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"})
        failure = None
        with environ, mock.patch("gorun.elastic.time.sleep", pauses.append), redirect_stderr(said):
            try:
                run_ranks(1, body)
            except HorovodInternalError as raised:
                failure = str(raised)
        return pauses, said.getvalue(), len(worlds) - len(left), failure

    def test_a_mistake_is_raised_at_once(self):
        worlds = []

        def body(rank):
            def train(state):
                worlds.append(rank)
                hvd.allreduce(np.ones(4 + rank), name="differs")

            with self.assertRaisesRegex(HorovodInternalError, "differs"):
                elastic.run(train)(elastic.ObjectState(broadcast_object, basics.rank, step=0))

        run_ranks(2, body)
        self.assertEqual(sorted(worlds), [0, 1])
        mistake = caused(errors.Mismatch("shapes"))
        lost = caused(errors.Aborted("lost"))
        for worlds, want in ([[mistake]], 1), ([[True, mistake]], 1), ([[lost], [mistake]], 2):
            self.assertEqual(self.train([*worlds, []])[2:], (want, "shapes"))

    def test_a_newcomers_mistake_costs_nobody_else(self):
        """In a world that has committed nothing yet, of ranks that have trained before."""
        mistake, lost = caused(errors.Mismatch("shapes")), caused(errors.Aborted("lost"))
        _, said, worlds, failure = self.train([[True, lost], [mistake], [mistake], [True]])
        self.assertEqual((worlds, failure), (4, None))
        self.assertEqual(said.count("gorun: warning: the world ended: shapes"), 2)
        self.assertEqual(self.train([[True, lost], *[[mistake]] * 20])[2:], (11, "shapes"))

    def test_failures_of_its_own(self):
        own = HorovodInternalError("no heart")
        pauses, said, worlds, failure = self.train([[own]] * 20)
        self.assertEqual((worlds, failure), (10, "no heart"))
        self.assertEqual(pauses, [0, 0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0])
        self.assertEqual(said.count("gorun: warning: the world ended: no heart"), 9)
        self.assertIn("10 worlds in a row ended without a commit, and training is given up", said)
        pauses, said, worlds, failure = self.train([*[[True, own]] * 30, []])
        self.assertEqual((pauses, worlds, failure), ([0] * 30, 31, None))

    def test_losses_are_not_limited(self):
        for kind in errors.Aborted, errors.Shutdown:
            pauses, said, worlds, failure = self.train([*[[caused(kind("lost"))]] * 30, []])
            self.assertEqual((worlds, failure), (31, None))
            self.assertEqual((pauses[:4], set(pauses[8:])), ([0, 0, 0.1, 0.2], {5.0}))
            self.assertEqual(said.count("the next begins in"), 28)
        self.assertEqual(self.train([[caused(errors.Aborted("lost"))], []])[1], "", "the launcher says it")


class CopyTest(unittest.TestCase):
    class Fickle:
        fails = False

        def __deepcopy__(self, memo):
            if self.fails:
                raise MemoryError("no room for a copy")
            return type(self)()

    def test_that_fails_is_none(self):
        torch = need("torch")

        import gorun.torch as hvd

        def body(rank):
            model = torch.nn.Linear(2, 1)
            state = hvd.elastic.TorchState(model=model, step=0, fickle=self.Fickle())
            want = model.weight.detach().clone()
            with torch.no_grad():
                model.weight.add_(1)
            state.step, state.fickle.fails = 7, True
            with self.assertRaises(MemoryError):
                state.save()
            state.restore()
            self.assertEqual((state.step, state._commits), (0, 0))
            self.assertTrue(torch.equal(model.weight, want))
            state.save()
            self.assertEqual(state._commits, 1)

        run_ranks(1, body)
