"""The commands gorun and horovodrun of an installed wheel: the binary takes over the process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NoReturn

from gorun.launch import binary


def gorun() -> NoReturn:
    """Become gorun."""
    _become("gorun")


def horovodrun() -> NoReturn:
    """Become gorun under the name horovodrun, which changes its behaviour."""
    _become("horovodrun")


def check_build(verbose: bool = False) -> NoReturn:
    """Print the features of gorun, as horovodrun --check-build does, and end the process."""
    sys.stdout.flush()
    sys.exit(subprocess.call([binary(), "--check-build"]))


def _become(name: str) -> NoReturn:
    os.execv(binary(), [name, *sys.argv[1:]])
