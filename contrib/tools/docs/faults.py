"""The faults that the checks of the documentation find."""


class Faults:
    """The faults found so far, each with its places."""

    def __init__(self) -> None:
        self.places: dict[str, list[str]] = {}  # by fault

    def add(self, where: str, what: str) -> None:
        """Note a fault."""
        places = self.places.setdefault(what, [])
        if where not in places:
            places.append(where)

    def lines(self) -> list[str]:
        """Return a line for each fault, which names its first place."""
        return [
            f"{where[0]}: {what}{f' (and {len(where) - 1} more)' if len(where) > 1 else ''}"
            for what, where in self.places.items()
        ]
