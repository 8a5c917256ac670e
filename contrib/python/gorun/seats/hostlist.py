"""The hosts of an elastic job, as a command that gorun runs again and again."""

from __future__ import annotations

import os
from collections.abc import Mapping


class HostList:
    """A list in memory of this process, which command prints."""

    def __init__(self) -> None:
        self._file = os.memfd_create("gorun-hosts")
        self.command = f"cat /proc/{os.getpid()}/fd/{self._file}"

    def write(self, slots: Mapping[str, int]) -> None:
        """Replace the list by these hosts and their slots, in one step."""
        new = os.memfd_create("gorun-hosts")
        os.write(new, "".join(f"{host}:{count}\n" for host, count in slots.items() if count).encode())
        os.dup2(new, self._file, inheritable=False)
        os.close(new)

    def close(self) -> None:
        """Forget the list."""
        os.close(self._file)
