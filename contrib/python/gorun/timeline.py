"""A record of every operation, for chrome://tracing and Perfetto.

Operations and their negotiation have Horovod's names; what happens inside an operation is not shown.
Each operation's name, that of a bucket for gradients, is a row: NEGOTIATE_… from its submission by this
rank until all ranks had submitted it, then the operation itself. Every rank writes a file of its own, rank
0 the one that was asked for; the first record has the time when its clock was 0, so that files can be laid
side by side.

A thread takes note when operations end, also while the script computes, and writes. Each write leaves
a complete file behind, whatever happens to the process after it.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gorun import constants
from gorun.bindings import DTYPES

if TYPE_CHECKING:
    from gorun.session import Request, Session

_KINDS = {
    constants.ALLREDUCE: "ALLREDUCE", constants.ALLGATHER: "ALLGATHER", constants.BROADCAST: "BROADCAST",
    constants.BARRIER: "BARRIER", constants.ALLTOALL: "ALLTOALL", constants.REDUCESCATTER: "REDUCESCATTER",
    constants.REDUCE: "REDUCE", constants.GATHER: "GATHER", constants.SCATTER: "SCATTER",
    constants.SEND: "SEND", constants.RECV: "RECV",
    constants.ADD_GROUP: "PROCESS_SET_ADD", constants.REMOVE_GROUP: "PROCESS_SET_REMOVE",
}  # fmt: skip
_TYPES = {number: name for name, number in DTYPES.items()}
_END = "\n]\n"
_LOOK_SECONDS = 0.1


def path_of(file_path: str, rank: int) -> str:
    """Return the file of a rank: as given for rank 0, with the rank before the suffix for the others."""
    if rank == 0:
        return file_path
    stem, suffix = os.path.splitext(file_path)
    return f"{stem}.rank{rank}{suffix}"


class Timeline:
    """The record of one session, from its creation to close()."""

    def __init__(self, file_path: str, session: Session, mark_cycles: bool = False) -> None:
        self._session = session
        self._mark_cycles = mark_cycles
        self._fd = os.open(path_of(file_path, session.rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._size = 0  # without the end
        self._epoch = time.time_ns()
        self._zero = time.monotonic_ns()
        self._rows: dict[str, int] = {}
        self._submitted: queue.SimpleQueue[tuple[int, float, dict[str, Any]]] = queue.SimpleQueue()
        self._closing = threading.Event()
        about = {"name": f"rank {session.rank}", "start_time_since_epoch_in_micros": self._epoch // 1000}
        self._write([{"name": "process_name", "ph": "M", "pid": 0, "args": about}])
        session.ends(0)  # those from now on
        self._thread = threading.Thread(target=self._run, name="gorun timeline", daemon=True)
        self._thread.start()

    def submitted(self, handle: int, since: float, request: Request) -> None:
        """Record a request of this rank that was submitted at a time from now()."""
        what = {"kind": request.kind, "dtype": request.dtype, "shape": request.shape, "name": request.name}
        self._submitted.put((handle, since, what))

    def now(self) -> float:
        """Return microseconds since the start of the record."""
        return (time.monotonic_ns() - self._zero) / 1000

    def close(self) -> None:
        """Write the operations that have ended so far, and stop."""
        self._closing.set()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._record()
        except OSError as error:
            warnings.warn(f"write timeline: {error}", stacklevel=1)
        finally:
            os.close(self._fd)

    def _record(self) -> None:
        under_way: dict[int, tuple[float, dict[str, Any]]] = {}
        ends: dict[int, tuple[float, float]] = {}
        while True:
            last = self._closing.is_set() or (self._session.size == 1 and self._closing.wait(_LOOK_SECONDS))
            for handle, stamp, took in self._session.ends(0 if last else _LOOK_SECONDS):
                ends[handle] = (stamp - self._zero) / 1000, took / 1000
            while not self._submitted.empty():
                handle, since, what = self._submitted.get()
                under_way[handle] = since, what
            events = []
            for handle in [*ends]:
                if handle in under_way:
                    events += self._events(*under_way.pop(handle), *ends.pop(handle))
            if last:  # what no one knows the end of
                for since, what in under_way.values():
                    events += self._events(since, what, self.now(), 0)
            if events:
                self._write(events)
            if last:
                self._session.ends(0, more=False)
                return

    def _events(
        self, since: float, what: dict[str, Any], end: float, took: float
    ) -> list[dict[str, Any]]:
        end = max(end, since)
        began = min(max(since, end - took), end)
        events: list[dict[str, Any]] = []
        row = self._rows.get(what["name"])
        if row is None:
            row = self._rows[what["name"]] = len(self._rows) + 1
            events.append(_event("process_name", "M", 0, row, args={"name": what["name"]}))
            events.append(_event("process_sort_index", "M", 0, row, args={"sort_index": row}))
        kind = _KINDS.get(what["kind"], f"KIND_{what['kind']}")
        detail = {"dtype": _TYPES.get(what["dtype"], "none"), "shape": _shape(what["shape"])}
        events += [
            _event(f"NEGOTIATE_{kind}", "B", since, row),
            _event(str(self._session.rank), "X", since, row, dur=0),
            _event(f"NEGOTIATE_{kind}", "E", began, row),
            _event(kind, "B", began, row),
            _event(kind, "E", end, row, args=detail),
        ]
        if self._mark_cycles:  # the engine has none: every operation begins by itself
            events.append(_event("CYCLE_START", "i", began, 0, s="g"))
        return events

    def _write(self, events: Sequence[dict[str, Any]]) -> None:
        text = ",\n".join(json.dumps(event) for event in events)
        data = ((",\n" if self._size else "[\n") + text).encode()
        os.pwrite(self._fd, data + _END.encode(), self._size)
        self._size += len(data)


def _event(name: str, phase: str, at: float, row: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": phase, "ts": round(at, 3), "pid": row, "tid": 0, **more}


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
