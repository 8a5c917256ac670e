"""Lists of hosts and the placement of ranks on them, for scripts that import it from horovod.runner.

gorun itself reads hosts in more forms than these, and by itself: nothing here takes part in a launch.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

__all__ = [
    "INVALID_SLOT_INFO", "HostInfo", "SlotInfo", "get_host_assignments", "parse_host_files", "parse_hosts",
    "parse_hosts_and_slots",
]  # fmt: skip


class HostInfo:
    """A host and its number of slots."""

    def __init__(self, hostname: str, slots: int) -> None:
        self.hostname = hostname
        self.slots = slots

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Read name:slots."""
        name, _, slots = host_string.strip().rpartition(":")
        if not name:
            raise ValueError(f"host {host_string!r}: not of the form name:slots")
        return HostInfo(name, int(slots))


@dataclasses.dataclass
class SlotInfo:
    """The host of a rank, and all its numbers."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """Return rank and size, in the job, on the host and across hosts, with commas."""
        pairs = (self.rank, self.size), (self.local_rank, self.local_size), (self.cross_rank, self.cross_size)
        return ",".join(f"{number},{count}" for number, count in pairs)


INVALID_SLOT_INFO = SlotInfo("", *[-1] * 6)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Read a list such as host1:2,host2:4."""
    return [HostInfo.from_string(part) for part in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """Read such a list and return the names in order, and the number of slots of each."""
    parts = [part.strip() for part in hosts.split(",")]
    for part in parts:
        if not re.fullmatch(r"[\w.-]+:[0-9]+", part):
            raise ValueError(f"host {part!r}: not of the form name:slots, as in worker-0:2,worker-1:2")
    pairs = [HostInfo.from_string(part) for part in parts]
    return [host.hostname for host in pairs], {host.hostname: host.slots for host in pairs}


def parse_host_files(filename: str) -> str:
    """Read a file with a line "name slots=N" for each host and return them as parse_hosts() takes them."""
    hosts = []
    with open(filename) as file:
        for line in file:
            line = line.partition("#")[0].strip()
            if not line:
                continue
            match = re.fullmatch(r"(\S+)\s+slots\s*=\s*([0-9]+)", line)
            if match is None:
                raise ValueError(f"{filename}: {line!r} is not of the form: name slots=N")
            hosts.append(f"{match[1]}:{match[2]}")
    return ",".join(hosts)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Place ranks on the hosts' slots, host by host; ValueError if they have fewer than the minimum."""
    places = [(host.hostname, slot) for host in hosts for slot in range(host.slots)][:max_num_proc]
    if len(places) < min_num_proc:
        raise ValueError(f"{min_num_proc} processes do not fit into {len(places)} available slots")
    beside = {name: [slot for host, slot in places if host == name] for name, _ in places}
    across = {slot: [host for host, other in places if other == slot] for _, slot in places}
    return [
        SlotInfo(
            name, rank, slot, across[slot].index(name), len(places), len(beside[name]), len(across[slot])
        )
        for rank, (name, slot) in enumerate(places)
    ]
