"""Merge the timelines of a job's ranks into one, side by side.

    python3 contrib/tools/timelines.py -o all.json t.json t.rank*.json

Each rank's file has a zero of its own. The files say when that was by the clock of their host: so in the
result the hosts differ by as much as their clocks do. Every rank is a process there, and every name of an
operation one of its rows.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
START = "start_time_since_epoch_in_micros"
ROWS = {"process_name": "thread_name", "process_sort_index": "thread_sort_index"}


def about(events: Sequence[Event]) -> tuple[int, int]:
    """Return the rank of a timeline, and its zero in microseconds since 1970."""
    args = events[0].get("args", {}) if events else {}
    name = re.fullmatch(r"rank (\d+)", str(args.get("name")))
    if name is None or START not in args:
        raise ValueError(f"the first record names no rank and no {START}")
    return int(name[1]), int(args[START])


def merge(timelines: Sequence[Sequence[Event]]) -> list[Event]:
    """Return all events, counted from the earliest zero."""
    known = [about(events) for events in timelines]
    ranks = [rank for rank, _ in known]
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"the timelines are of ranks {sorted(ranks)}: each may be given once")
    first = min((start for _, start in known), default=0)
    merged: list[Event] = []
    for (rank, start), events in sorted(zip(known, timelines), key=lambda pair: pair[0]):
        merged.append({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}})
        merged.append({"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}})
        for event in events[1:]:
            moved = {**event, "pid": rank, "tid": event["pid"]}
            if event["ph"] == "M":
                moved["name"] = ROWS.get(event["name"], event["name"])
            if "ts" in event:
                moved["ts"] = round(event["ts"] + start - first, 3)
            if event.get("s") == "g":  # a mark that is as high as all rows: those of its rank
                moved["s"] = "p"
            merged.append(moved)
    return merged


def read(path: Path) -> list[Event]:
    """Return the events of a file."""
    try:
        events = json.loads(path.read_text())
        about(events)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SystemExit(f"timelines: error: read {path}: {error}") from error
    return events


def main() -> None:
    """Merge the files on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the timeline of a rank")
    parser.add_argument("-o", "--output", required=True, type=Path, help="where all of them go")
    args = parser.parse_args()
    try:
        events = merge([read(path) for path in args.files])
    except ValueError as error:
        raise SystemExit(f"timelines: error: {error}") from error
    args.output.write_text("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")


if __name__ == "__main__":
    main()
