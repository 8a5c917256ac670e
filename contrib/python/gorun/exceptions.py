"""Exceptions for training scripts to catch. Names and base classes are Horovod's."""

from __future__ import annotations

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class HorovodInternalError(RuntimeError):
    """A collective could not be completed: ranks disagreed, one of them left, or a host died."""


class NotInitializedError(HorovodInternalError, ValueError):
    """A call that needs hvd.init() came before it. Horovod raises one or the other base, by the call."""

    def __init__(self, text: str = NOT_INITIALIZED) -> None:
        super().__init__(text)


class HorovodVersionMismatchError(ImportError):
    """An extension was compiled for another version of its framework; never raised, as none is compiled."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Return the text of HorovodVersionMismatchError."""
    return f"Framework {name} installed with version {installed_version} but found version {version}."


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed; an elastic job starts its next round (skip_sync: hosts only left)."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync
