"""What the tests need in common: frameworks, where they are installed."""

import importlib
import unittest


def need(name):
    """Import a framework, or skip the whole module and say what to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"{name} is not installed (Debian: apt-get install python3-{name})") from None


def need_torch():
    """Import torch for the small tensors of tests."""
    torch = need("torch")
    torch.set_num_threads(1)
    return torch
