"""Record a job that loses a host, and draw the recording as a picture that moves:

    contrib/demo/picture.py record contrib/demo/loss.cast     # as root, on three hosts of a lab
    contrib/demo/picture.py draw contrib/demo/loss.cast docs/pictures/loss.svg

A recording is a file of asciinema, version 2: a header, and what came when, a line each. A mark is the loss. The picture is
an SVG that needs no script; without animations it shows the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "lab"
COMMAND = ["-np", "6", "--min-np", "2", "-H", "host1:2,host2:2,host3:2", "python3", "line.py"]
COLUMNS = 57  # so that 390 pixels show it in letters of 10
LETTER, ROW, MARGIN, TOP = 7.3, 17, 12, 122
HOLD = 4.0  # seconds that the end is shown
STYLE = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }
.page { fill: #ffffff }
.host { fill: #f6f8fa; stroke: #57606a }
.ring { fill: none; stroke: #1a7f37; stroke-width: 2 }
.lost { fill: #ffebe9; stroke: #cf222e; stroke-width: 2 }
.bold { font-weight: bold }
.alarm { fill: #cf222e; font-weight: bold }
.good { fill: #1a7f37; font-weight: bold }
.time { fill: #8c959f }
"""


def record(to: Path) -> None:
    """Run the job, kill host2 after 20 steps, and write what came when."""
    name = "picture"
    subprocess.run(["go", "build", "-o", LAB, "./contrib/lab/cmd/lab"], check=True, cwd=ROOT)
    subprocess.run([LAB, "--name", name, "up", "3"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        program = [*COMMAND[:-1], "contrib/demo/" + COMMAND[-1]]
        job = subprocess.Popen(
            [LAB, "--name", name, "run", "bin/gorun", "--no-tag-output", *program],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        began, events = time.monotonic(), [(0.0, "o", f"$ gorun {' '.join(COMMAND)}\n")]
        assert job.stdout is not None
        for line in job.stdout:
            events.append((time.monotonic() - began, "o", line))
            if "step 20 of" in line:
                subprocess.run([LAB, "--name", name, "kill", "2"], check=True, cwd=ROOT)
                events.append((time.monotonic() - began, "m", "host2"))
            if "trained to the end" in line:
                break
        job.communicate()
        if job.returncode != 0:
            sys.exit(f"picture: error: the job ended with {job.returncode}")
    finally:
        subprocess.run([LAB, "--name", name, "down"], check=True, cwd=ROOT)
    lines = [json.dumps({"version": 2, "width": 80, "height": 24, "title": "gorun loses a host"})]
    lines += [json.dumps([round(at, 3), kind, text]) for at, kind, text in events]
    to.write_text("\n".join(lines) + "\n")


def draw(recording: str) -> str:
    """Return the picture of a recording."""
    events = [json.loads(line) for line in recording.splitlines()[1:]]
    end = events[-1][0] + HOLD
    styles: list[str] = []

    def timed(at: float, seen: Callable[[], str], until: float = 0.0) -> str:
        """Return a part that is there from a time on, or until another."""
        name = f"t{len(styles)}"
        first, then = ("1", "0") if until else ("0", "1")
        styles.append(
            f"@keyframes {name} {{ 0% {{ opacity: {first} }} {100 * (until or at) / end:.2f}% {{ opacity: {then} }} }}\n"
            f".{name} {{ opacity: {then}; animation: {name} {end:.1f}s step-end infinite }}"
        )
        return f'<g class="{name}">{seen()}</g>'

    loss = next(at for at, kind, _ in events if kind == "m")
    again = next(at for at, _, text in events if "epoch 2" in text)
    rows = 0

    def row(text: str) -> str:
        nonlocal rows
        kind = "alarm" if " is lost" in text else "good" if text.startswith(("trained", "gorun: epoch")) else "bold" if text[0] == "$" else ""
        out = ""
        for part in textwrap.wrap(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False):
            out += f'<text class="{kind}" x="{MARGIN}" y="{TOP + ROW * rows}">{escape(part)}</text>'
            rows += 1
        return out

    output = [timed(at, lambda text=text: row(text)) for at, kind, text in events if kind == "o"]
    wide, high = round(2 * MARGIN + COLUMNS * LETTER), TOP + ROW * rows + 10
    box = (wide - 2 * MARGIN - 2 * 30) / 3
    left = [MARGIN + n * (box + 30) for n in range(3)]
    middle = [x + box / 2 for x in left]

    def host(n: int, kind: str, name: str, what: str) -> str:
        return (
            f'<rect class="{kind}" x="{left[n]:.1f}" y="12" width="{box:.1f}" height="46" rx="6"/>'
            f'<text class="{"alarm" if kind == "lost" else "bold"}" text-anchor="middle" x="{middle[n]:.1f}" y="31">{name}</text>'
            f'<text text-anchor="middle" x="{middle[n]:.1f}" y="49">{what}</text>'
        )

    def between(a: int, b: int) -> str:
        return f"M{left[a] + box:.1f} 35H{left[b]:.1f}"

    back = f"M{middle[2]:.1f} 58V80H{middle[0]:.1f}V58"
    whole = f'<path class="ring" d="{between(0, 1)}{between(1, 2)}{back}"/>'
    less = f'<path class="ring" d="{back}M{left[0] + box:.1f} 45h12v26H{left[2] - 12:.1f}v-26h12"/>'
    parts = [
        f'<rect class="page" width="{wide}" height="{high}"/>',
        *(host(n, "host", f"host{n + 1}", "2 ranks") for n in range(3)),
        timed(0, lambda: whole, until=loss),
        timed(loss, lambda: host(1, "lost", "host2", "killed")),
        timed(again, lambda: less),
        *output,
        f'<rect class="time" y="{high - 4}" width="{wide}" height="4"/>',
    ]
    styles.append(f"@keyframes time {{ from {{ transform: scaleX(0) }} }}\n.time {{ animation: time {end:.1f}s linear infinite }}")
    styles.append("@media (prefers-reduced-motion: reduce) { * { animation: none !important } }")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">\n'
        f"<title>A job that loses a host and goes on</title>\n<style>{STYLE}{chr(10).join(styles)}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", to]:
            record(Path(to))
        case ["draw", of, to]:
            Path(to).write_text(draw(Path(of).read_text()))
        case _:
            sys.exit(__doc__)
