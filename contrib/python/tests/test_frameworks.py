"""What gorun doctor, --check-build and -v say about frameworks."""

import contextlib
import email.message  # noqa: F401 (importlib.metadata needs it, and cannot find it where the test has its own path)
import importlib
import io
import json
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from gorun import frameworks, native


class FrameworksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = Path(folder.name)
        for module, distribution, version in (
            ("tensorflow", "tensorflow_cpu", "2.21.0"), ("keras", "keras", "3.15.1"), ("jax", "", ""),
        ):  # fmt: skip
            (self.site / module).mkdir()
            (self.site / module / "__init__.py").write_text("raise AssertionError('it was imported')")
            if distribution:
                info = self.site / f"{distribution}-{version}.dist-info"
                info.mkdir()
                name = distribution.replace("_", "-")
                (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        changed = mock.patch.object(sys, "path", [folder.name])
        changed.start()
        self.addCleanup(changed.stop)
        gone = mock.patch.dict(sys.modules)
        gone.start()
        self.addCleanup(gone.stop)
        for module in ("torch", "tensorflow", "keras", "jax"):
            sys.modules.pop(module, None)

    def test_versions_are_found_without_an_import(self):
        self.assertEqual(frameworks.installed(), {"TensorFlow": "2.21.0", "Keras": "3.15.1", "JAX": ""})

    def answer(self, reason):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            with mock.patch.multiple(native, reason=lambda: reason, origin=lambda: ""):
                frameworks.main()
        return json.loads(out.getvalue())

    def test_what_carries_out_their_operations(self):
        text = "TensorFlow 2.21.0 by libgorun, Keras 3.15.1, JAX by libgorun"
        self.assertEqual(self.answer(""), {"native": "", "origin": "", "frameworks": text})
        text = "TensorFlow 2.21.0, Keras 3.15.1, JAX"
        self.assertEqual(self.answer("no memfd"), {"native": "no memfd", "origin": "", "frameworks": text})

    def said(self, **environ):
        with contextlib.redirect_stderr(io.StringIO()) as out, mock.patch.dict(os.environ, environ):
            frameworks.show()
        return out.getvalue()

    def by(self):
        return "" if native.reason() else " by libgorun"

    def test_a_job_shows_what_it_has_imported(self):
        python = ".".join(map(str, sys.version_info[:3]))
        wanted = {"GORUN_VERBOSE": "1", "GORUN_LOCAL_RANK": "0"}
        self.assertEqual(self.said(**wanted), f"gorun: Python {python}, no framework\n")
        sys.modules["torch"] = types.SimpleNamespace(__version__="2.15.0")
        self.assertEqual(self.said(**wanted), f"gorun: Python {python}, PyTorch 2.15.0{self.by()}\n")
        self.assertEqual(self.said(GORUN_VERBOSE="1", GORUN_LOCAL_RANK="1"), "")
        self.assertEqual(self.said(GORUN_VERBOSE="0", GORUN_LOCAL_RANK="0"), "")

    def test_a_spare_loads_what_torch_needs_later(self):
        (self.site / "torch").mkdir()
        (self.site / "torch/__init__.py").write_text("__version__ = '2.15.0'")
        (self.site / "torch/_dynamo.py").touch()
        frameworks.load_ahead()
        self.assertNotIn("torch", sys.modules)
        torch = importlib.import_module("torch")
        with mock.patch.object(torch, "__version__", "1.13.1"):
            frameworks.load_ahead()
        self.assertNotIn("torch._dynamo", sys.modules)
        frameworks.load_ahead()
        self.assertIn("torch._dynamo", sys.modules)
