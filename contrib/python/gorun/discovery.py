"""Host discovery, for scripts that import it from horovod.runner. gorun itself runs the script instead."""

from __future__ import annotations

import subprocess

__all__ = ["FixedHosts", "HostDiscovery", "HostDiscoveryScript"]


class HostDiscovery:
    """A source of hosts."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the number of slots of each host, by name."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """A script that prints a line for each host: name:slots, or the name alone."""

    def __init__(self, discovery_script: str, slots: int) -> None:
        self._script = discovery_script
        self._slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the script; RuntimeError if it fails."""
        ended = subprocess.run(self._script, shell=True, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"run discovery script {self._script}: exit status {ended.returncode}")
        lines = (line.strip().partition(":") for line in ended.stdout.splitlines() if line.strip())
        return {name: int(slots or self._slots) for name, _, slots in lines}


class FixedHosts(HostDiscovery):
    """A fixed list of hosts."""

    def __init__(self, host_slots: dict[str, int]) -> None:
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the hosts."""
        return self._host_slots

    def set(self, host_slots: dict[str, int]) -> None:
        """Replace the hosts."""
        self._host_slots = host_slots
