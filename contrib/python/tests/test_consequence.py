"""What a rank shows that fails because another one did."""

import contextlib
import io
import sys
import unittest
from unittest import mock

import tests_path  # noqa: F401

from gorun import consequence, errors, loaders
from gorun.exceptions import HorovodInternalError


class TestConsequence(unittest.TestCase):
    def shown(self, raises):
        """Return what an uncaught error shows, and how often its rank waits before."""
        namespace = {"raises": raises}
        exec(compile("def script():\n    own()\n", "train.py", "exec"), namespace)  # noqa: S102
        exec(compile("def own():\n    raises()\n", consequence.__file__, "exec"), namespace)  # noqa: S102
        with (
            mock.patch("sys.excepthook", sys.__excepthook__),
            mock.patch("time.sleep") as slept,
            contextlib.redirect_stderr(io.StringIO()) as text,
        ):
            consequence.show_last()
            once = sys.excepthook
            consequence.show_last()
            self.assertIs(sys.excepthook, once)
            try:
                namespace["script"]()
            except Exception:
                sys.excepthook(*sys.exc_info())
        return text.getvalue(), slept.call_count

    def test_others(self):
        def raises():
            try:
                raise errors.Shutdown("rank 1 left")
            except errors.Shutdown as error:
                raise HorovodInternalError("rank 1 left") from error

        text, waits = self.shown(raises)
        self.assertEqual(waits, 1)
        self.assertIn('File "train.py", line 2, in script', text)
        self.assertTrue(text.endswith("HorovodInternalError: rank 1 left\n"), text)
        self.assertNotIn("direct cause", text)
        self.assertNotIn("in own", text)

    def test_own(self):
        def raises():
            raise ValueError("no more") from KeyError("float")

        text, waits = self.shown(raises)
        self.assertEqual(waits, 0)
        self.assertIn("direct cause", text)
        self.assertIn("in own", text)


class Worker:
    """A process of a data loader, which has ended when it was asked some times."""

    def __init__(self, *codes):
        self.codes, self.pid = list(codes), 7

    @property
    def exitcode(self):
        return self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]


class TestLoader(unittest.TestCase):
    def test_killed(self):
        def broken(_):
            raise ConnectionResetError

        name = "worker 1 (process 7) of the data loader"
        for workers, kind, text in (
            ((Worker(None), Worker(None, -9)), RuntimeError, f"{name} was killed by signal 9"),
            ((Worker(None), Worker(1)), ConnectionResetError, ""),
            ((), ConnectionResetError, ""),
        ):
            iterator = mock.Mock(_workers=workers)
            with mock.patch("time.sleep"), self.assertRaises(kind) as raised:
                loaders._timed(broken)(iterator)
            self.assertEqual(str(raised.exception), text)
