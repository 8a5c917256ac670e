"""Who says which hosts there are, for scripts that ask horovod.runner for it. gorun runs its own script."""

from __future__ import annotations

import subprocess

__all__ = ["FixedHosts", "HostDiscovery", "HostDiscoveryScript"]


class HostDiscovery:
    """Something that knows the hosts."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return how many ranks each host takes."""
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
    """Hosts that are known."""

    def __init__(self, host_slots: dict[str, int]) -> None:
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return them."""
        return self._host_slots

    def set(self, host_slots: dict[str, int]) -> None:
        """Say that there are others now."""
        self._host_slots = host_slots
