"""Run the command blocks of pages on lab hosts, as a reader would.

    python runnable.py --lab LAB --gorun BINARY --python PYTHON [PAGE ...]

A block whose fence line is `bash runnable` runs on a machine from which host1 and host2 can be reached by ssh, in a
directory that both see. The blocks of a page run one after the other in one shell, and every command must succeed. If
the next block is `text output`, its lines must occur in the output in this order; … in a line stands for any text. A
block with file=NAME is written to that file. A page that writes no train.py of its own finds a small one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from faults import Faults
from pages import ROOT, blocks, pages

WORK = ROOT / "build/docs-run"
MARK = "\x1e"  # separates the output of blocks
PROLOGUE = f"""
set -eE -o pipefail
exec </dev/null 2>&1
trap 'status=$?; printf "{MARK}failed %s %s" "$status" "$BASH_COMMAND"' ERR
"""


@dataclass
class Step:
    """A block that runs, and what it should print."""

    line: int
    commands: list[str]
    output: list[str] = field(default_factory=list)


@dataclass
class Play:
    """What a page asks for: files, and steps."""

    files: dict[str, list[str]]
    steps: list[Step]


def play(text: str) -> Play:
    """Read the blocks of a page."""
    found = Play({}, [])
    previous = ""
    for block in blocks(text):
        words = block.info.split()
        for word in words[1:]:
            if word.startswith("file="):
                found.files[word.removeprefix("file=")] = block.lines
        if words[:2] == ["bash", "runnable"]:
            found.steps.append(Step(block.line, block.lines))
        elif words[:2] == ["text", "output"] and previous == "runnable":
            found.steps[-1].output = block.lines
        previous = words[1] if len(words) > 1 else ""
    return found


def script(steps: list[Step]) -> str:
    """Return the steps as a script, which marks the output of each."""
    parts = [f"printf '{MARK}block %s\\n' {step.line}\n" + "\n".join(step.commands) + "\n" for step in steps]
    return PROLOGUE + "".join(parts) + f"printf '{MARK}end'\n"


def missing(expected: list[str], output: str) -> str | None:
    """Return the first expected line that the output lacks."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in output.splitlines()]
    at = 0
    for want in (line.rstrip() for line in expected):
        if want.strip() in ("", "…", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in re.split(r"…", want)))
        while at < len(lines) and not pattern.fullmatch(lines[at]):
            at += 1
        if at == len(lines):
            return want
        at += 1
    return None


def judge(name: str, steps: list[Step], output: str, faults: Faults) -> None:
    """Compare what ran with what the page shows."""
    parts = output.split(MARK)
    outputs = {}
    for part in parts[1:]:
        head, _, rest = part.partition("\n")
        if head.startswith("block "):
            outputs[int(head.split()[1])] = rest
    last = max(outputs, default=0)
    failed = [part for part in parts[1:] if part.startswith("failed ")]
    if failed:
        _, status, command = failed[0].split(" ", 2)
        tail = "\n    ".join(outputs.get(last, "").splitlines()[-20:])
        faults.add(f"{name}:{last}", f"exited with status {status}: {command.strip()}\n    {tail}")
    elif parts[-1] != "end":
        tail = "\n    ".join(output.splitlines()[-20:])
        faults.add(f"{name}:{last}", f"its block did not end\n    {tail}")
    for step in steps:
        if step.line in outputs and (want := missing(step.output, outputs[step.line])):
            shown = "\n    ".join(outputs[step.line].splitlines()[-20:])
            faults.add(f"{name}:{step.line}", f"does not print: {want}\n    it prints:\n    {shown}")


class Hosts:
    """Two lab hosts, and a machine that knows them."""

    def __init__(self, lab: str, gorun: Path, python: str) -> None:
        self.lab, self.gorun = [lab, "--name", f"docs-{os.getpid()}"], gorun
        self.python = shutil.which(python) or python

    def up(self) -> str | None:
        """Start the hosts; return why that is not possible here."""
        command = [self.python, "-c", "import sys; print(sys.base_prefix)"]
        prefix = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        share = ["--share", prefix] if prefix.startswith(("/root", "/home", "/tmp")) else []
        done = subprocess.run([*self.lab, "up", *share, "2"], cwd=ROOT, capture_output=True, text=True)
        return done.stderr.strip().splitlines()[0] if done.returncode else None

    def down(self) -> None:
        """End the hosts and what runs on them."""
        subprocess.run([*self.lab, "down"], cwd=ROOT, check=True)

    def run(self, text: str, directory: Path, timeout: float) -> str:
        """Run a script and return what it prints."""
        bin_ = directory / ".bin"
        bin_.mkdir()
        for name in ("python", "python3"):
            (bin_ / name).symlink_to(self.python)
        (bin_ / "gorun").symlink_to(self.gorun)
        text = f"PATH={bin_}:$PATH\n{text}"
        command = [*self.lab, "run", "bash", "-c", text]
        try:
            done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as e:
            return (e.stdout or b"").decode(errors="replace") + f"\nstill running after {timeout:.0f} s"
        return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lab", required=True, help="the program contrib/lab/cmd/lab")
    parser.add_argument("--gorun", type=Path, default=ROOT / "bin/gorun")
    parser.add_argument("--python", default="python3", help="a Python with torch, for the pages' scripts")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for the blocks of one page")
    parser.add_argument("pages", nargs="*", help="such as quickstart.md; without any, all that have blocks to run")
    args = parser.parse_args()
    faults = Faults()
    count = ran = 0
    # README is no page of the site, but its blocks are the first that a reader tries.
    for name, path in {"README.md": ROOT / "README.md", **pages(ROOT)}.items():
        found = play(path.read_text())
        if not found.steps or (args.pages and name not in args.pages):
            continue
        directory = WORK / name.removesuffix(".md")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("train.py"), directory)
        for file, lines in found.files.items():
            (directory / file).write_text("\n".join(lines) + "\n")
        hosts = Hosts(args.lab, args.gorun, args.python)
        if why := hosts.up():
            print(f"Skipped on this machine: blocks of the documentation: {why}")
            sys.exit(1 if os.environ.get("CI") else 0)
        try:
            output = hosts.run(script(found.steps), directory, args.timeout)
        finally:
            hosts.down()
        judge(path.relative_to(ROOT).as_posix(), found.steps, output, faults)
        count, ran = count + len(found.steps), ran + 1
    for line in faults.lines():
        print(f"docs: error: {line}")
    if faults.places:
        sys.exit(f"docs: error: {len(faults.places)} faults in the blocks of pages")
    if not count:
        sys.exit("docs: error: no page has a block to run")
    print(f"docs: {count} blocks of {ran} pages ran on lab hosts")


if __name__ == "__main__":
    main()
