"""The nodes of the Ray cluster, and the names that gorun gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, TypeVar

import ray

_Item = TypeVar("_Item")


def alive() -> list[dict[str, Any]]:
    """Return the nodes that Ray knows and hears."""
    return [node for node in ray.nodes() if node["Alive"]]


class Names:
    """Names of nodes: the machine's, with the node's number where another node has or had the same.

    A node keeps its name, and no other node gets it.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, node_id: str) -> str:
        """Return the name of a node."""
        if node_id not in self._names:
            machine = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
            name = machine.get(node_id, "node")
            self._names[node_id] = f"{name}-{node_id[:8]}" if name in self._names.values() else name
        return self._names[node_id]


def grouped(items: Sequence[_Item], key: Callable[[_Item], str]) -> list[_Item]:
    """Return items with those of one key beside each other, in the order in which keys occur first."""
    order = {value: number for number, value in reversed(list(enumerate(map(key, items))))}
    return sorted(items, key=lambda item: order[key(item)])


def number(value: float) -> str:
    """Return a number of Ray's without a fraction that it does not have."""
    return f"{value:g}"
