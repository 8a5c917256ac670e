"""A barrier that names the ranks that are missing."""

from __future__ import annotations

import time
from datetime import timedelta

from torch import distributed as dist

from gorun.counters import counters

_MOST_SECONDS = 1e6  # the longest wait that a store accepts
_GRACE_SECONDS = 1  # for rank 0 to name the missing ranks


def monitor(
    store: dist.Store, serial: int, rank: int, size: int, seconds: float, wait_all_ranks: bool
) -> None:
    """Return when all ranks have called it; after this many seconds raise RuntimeError on all that have.

    Rank 0 names the first rank that is missing, or with wait_all_ranks every one.
    """
    key = f"monitored.{serial}"
    if rank:
        store.set(f"{key}.{rank}", "")
        missing = _answer(store, key, seconds)
    else:
        missing = ", ".join(_missing(store, key, size, seconds, wait_all_ranks))
        store.set(key, missing)
        if not missing:
            store.delete_key(f"monitored.{serial - 1}")  # all of them have read it
    if missing:
        ranks = f"Ranks {missing}" if "," in missing else f"Rank {missing}"
        text = f"{ranks} failed to pass monitoredBarrier in {seconds * 1000:g} ms"
        if rank:
            text = (
                f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for "
                f"send/recv from rank 0: {text}"
            )
        raise RuntimeError(f"backend gorun: {text}")


def _missing(store: dist.Store, key: str, size: int, seconds: float, wait_all_ranks: bool) -> list[str]:
    end = time.monotonic() + seconds
    missing: list[str] = []
    for other in range(1, size):
        if _comes(store, f"{key}.{other}", end - time.monotonic()):
            store.delete_key(f"{key}.{other}")
            continue
        missing.append(str(other))
        if not wait_all_ranks:
            break
    return missing


def _answer(store: dist.Store, key: str, seconds: float) -> str:
    """Return the ranks that rank 0 misses, or rank 0 itself if it reports nothing."""
    if not _comes(store, key, seconds + _GRACE_SECONDS):
        return "0"
    return store.get(key).decode()


def _comes(store: dist.Store, key: str, seconds: float) -> bool:
    began = counters.waits()
    try:
        store.wait([key], timedelta(seconds=min(max(1e-3, seconds), _MOST_SECONDS)))
    except RuntimeError:
        return False
    finally:
        counters.missed(began)
    return True
