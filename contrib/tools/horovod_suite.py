"""Run Horovod's own parallel tests, as a checkout of Horovod has them, by ranks that gorun started.

    python contrib/tools/horovod_suite.py --python /path/to/python [--np 2] [-H host1:2,host2:2] CHECKOUT [PATTERN ...]

The Python has pytest and what the tests import besides horovod. Each file of CHECKOUT/test/parallel is a job whose
ranks all run it, as its authors do with horovodrun. A test fails if it fails in a rank, and a file of which a rank
wrote no result fails as a whole. Hosts need the checkout and gorun's build directory at the same path.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 3600  # for a file
FILES = r"test_(torch|tensorflow|tensorflow2|.*keras.*|adasum_pytorch|adasum_tensorflow)\.py$"
OUTCOMES = ("failed", "skipped", "passed")  # the first one of all ranks counts


def main() -> int:
    """Run the tests of each file, and print how they ended. Return the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python with pytest and the frameworks")
    parser.add_argument("--gorun", default=str(ROOT / "bin" / "gorun"))
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("-H", "--hosts", help="as for gorun")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("patterns", nargs="*", help="regular expressions: only files whose names have one")
    args = parser.parse_args()
    files = sorted((args.checkout / "test" / "parallel").glob("test_*.py"))
    patterns = args.patterns or [FILES]
    files = [path for path in files if any(re.search(pattern, path.name) for pattern in patterns)]
    if not files:
        parser.error(f"{args.checkout}/test/parallel has no such tests: name a checkout of Horovod")
    return sum(_report(path, *_run(args, path)) for path in files)


def _run(args: argparse.Namespace, path: Path) -> tuple[dict[str, str], str]:
    """Return the outcome of each test of a file, and why there may be too few."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="horovod-suite-", dir=ROOT / "build") as directory:
        # A rank with failed tests has done its part: if it ended with 1, gorun would end the others.
        run = 'r="$0/$HOROVOD_RANK.xml"; "$1" -B -m pytest -q -p no:cacheprovider --junitxml="$r" "$2" || [ -e "$r" ]'
        command = ["timeout", str(SECONDS), args.gorun, "-np", str(args.np)]
        command += ["-H", args.hosts] if args.hosts else []
        command += ["sh", "-c", run, directory, args.python, str(path.resolve())]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        job = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", check=False)
        outcomes: dict[str, str] = {}
        results = sorted(Path(directory).glob("*.xml"))
        for result in results:
            for case in ElementTree.parse(result).iter("testcase"):
                name = f"{case.get('classname')}.{case.get('name')}"
                found = {child.tag for child in case}
                outcome = "failed" if found & {"failure", "error"} else "skipped" if "skipped" in found else "passed"
                outcomes[name] = min(outcomes.get(name, outcome), outcome, key=OUTCOMES.index)
    if len(results) == args.np:
        return outcomes, ""
    return outcomes, f"{len(results)} of {args.np} ranks wrote results\n{job.stdout[-6000:]}\n{job.stderr[-6000:]}"


def _report(path: Path, outcomes: dict[str, str], why: str) -> int:
    """Print how the tests of a file ended. Return the number of those that failed."""
    counts = {outcome: list(outcomes.values()).count(outcome) for outcome in OUTCOMES}
    print(f"{path.name}: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in reversed(OUTCOMES)), flush=True)
    for name, outcome in sorted(outcomes.items()):
        if outcome != "passed":
            print(f"  {outcome} {name}")
    if why:
        print(f"  failed as a whole: {why}")
    return counts["failed"] + bool(why)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
