"""Run Horovod's own parallel tests, as a checkout of Horovod has them, by ranks that gorun started.

    python contrib/tools/horovod_suite.py --python /path/to/python [--np 2 4] [-H host1:2,host2:2] CHECKOUT [PATTERN ...]

The Python has pytest and what the tests import besides horovod. Each file of CHECKOUT/test/parallel is a job whose
ranks all run it, as its authors do with horovodrun, with this file as a plugin of pytest. A test fails if it fails in
a rank. A test in which a rank crashes or takes too long ends the job, and another job goes on with the next test.
Hosts need the checkout, this directory and gorun's build directory at the same paths.
"""

import argparse
import faulthandler
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600  # for a test
FILE_SECONDS = 7200
FILES = r"test_(?!mxnet|compute_worker)"  # gorun has no MXNet and no service for tf.data
OUTCOMES = ("failed", "crashed", "skipped", "passed")  # the first one of all ranks counts

Results = dict[str, tuple[str, str]]  # by test: its outcome and why


def main() -> int:
    """Run the tests of each file, and print how they ended. Return 1 if one failed or crashed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python with pytest and the frameworks")
    parser.add_argument("--gorun", default=str(ROOT / "bin" / "gorun"))
    parser.add_argument("--np", type=int, nargs="+", default=[2])
    parser.add_argument("--seconds", type=int, default=SECONDS, help="how long a test may take")
    parser.add_argument("-H", "--hosts", help="as for gorun")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("patterns", nargs="*", help="regular expressions: only files whose names have one")
    args = parser.parse_args()
    files = sorted((args.checkout / "test" / "parallel").glob("test_*.py"))
    patterns = args.patterns or [FILES]
    files = [path for path in files if any(re.search(pattern, path.name) for pattern in patterns)]
    if not files:
        parser.error(f"{args.checkout}/test/parallel has no such tests: name a checkout of Horovod")
    (ROOT / "build").mkdir(exist_ok=True)
    wrong = 0
    for size in args.np:
        counts = [_report(path.name, *_run(args, size, path)) for path in files]
        total = [sum(column) for column in zip(*counts)]
        print(f"all, with {size} ranks: {_line(total)}")
        wrong += total[0] + total[1]
    return int(wrong > 0)


def _run(args: argparse.Namespace, size: int, path: Path) -> tuple[Results, str]:
    """Return how the tests of a file ended, and why some may be missing."""
    results: Results = {}
    end = time.monotonic() + FILE_SECONDS
    while True:
        job, ranks = _job(args, size, path, results, end - time.monotonic())
        # A job ends in the test of the rank that got least far. What others did since is done again.
        last = min(ranks, key=len)
        for name in last:
            results[name] = _worst([rank[name] for rank in ranks if name in rank])
        if job.returncode == 0:
            return results, ""
        said = f"a job ended with {job.returncode}\n{_end(job.stdout)}\n{_end(job.stderr)}"
        if time.monotonic() > end or "crashed" not in [outcome for outcome, _ in last.values()]:
            return results, said
        print(f"{path.name}: {said}", flush=True)


def _job(
    args: argparse.Namespace, size: int, path: Path, done: Results, seconds: float
) -> tuple[subprocess.CompletedProcess[str], list[Results]]:
    """Run the tests of a file that are not done. Return how the job ended, and how the tests of each rank did."""
    with tempfile.TemporaryDirectory(prefix="horovod-suite-", dir=ROOT / "build") as directory:
        Path(directory, "done").write_text("\n".join(done))
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "horovod_suite", "--capture=sys"]
        command = ["timeout", f"{max(seconds, 1):.0f}", args.gorun, "-np", str(size)]
        command += ["-H", args.hosts] if args.hosts else []
        command += [args.python, "-B", *pytest, str(path.resolve())]
        environ = {**os.environ, "SUITE": directory, "SUITE_SECONDS": str(args.seconds), "OMP_NUM_THREADS": "1"}
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        job = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", check=False)
        ranks: list[Results] = [{} for _ in range(size)]
        for rank, results in enumerate(ranks):
            noted = Path(directory, str(rank))
            for line in noted.read_text().splitlines() if noted.exists() else []:
                outcome, name, why = line.split("\t", 2)
                results[name] = outcome, why
    return job, ranks


def _worst(results: list[tuple[str, str]]) -> tuple[str, str]:
    return min(results, key=lambda result: OUTCOMES.index(result[0]))


def _report(file: str, results: Results, missing: str) -> list[int]:
    """Print how the tests of a file ended. Return how many had each outcome."""
    counts = [sum(one == outcome for one, _ in results.values()) for outcome in OUTCOMES]
    counts[0] += bool(missing)
    print(f"{file}: {_line(counts)}", flush=True)
    for name, (outcome, why) in sorted(results.items()):
        if outcome != "passed":
            print(f"  {outcome} {name.partition('::')[2] or name}: {why}")
    if missing:
        print(f"  failed as a whole: {missing}")
    return counts


def _end(output: str) -> str:
    """Return the end of an output without the frames of pytest."""
    return "\n".join([line for line in output.splitlines() if not re.search("_pytest/|pluggy/", line)][-40:])


def _line(counts: list[int]) -> str:
    return ", ".join(f"{count} {outcome}" for count, outcome in reversed(list(zip(counts, OUTCOMES))))


# The plugin: notes in a file what each test of this rank does.


_ended: list[tuple[str, str]] = []  # the parts of the test that runs


def _note(outcome: str, name: str, why: Any = "") -> None:
    with Path(os.environ["SUITE"], os.environ["HOROVOD_RANK"]).open("a") as file:
        print(outcome, name, " ".join(str(why).split())[:200], sep="\t", file=file)


def pytest_configure() -> None:
    """Hide the directory that the plugin came from: its modules are not for the tests."""
    sys.path.remove(str(Path(__file__).parent))


def pytest_collectreport(report: Any) -> None:
    """Note a file that cannot be loaded."""
    if report.failed:
        _note("failed", report.nodeid, str(report.longrepr)[-200:])


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leave out what other jobs have done."""
    done = Path(os.environ["SUITE"], "done").read_text().splitlines()
    items[:] = [item for item in items if item.nodeid not in done]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note a test that begins. End this rank if the test takes too long."""
    _note("crashed", nodeid, "a rank crashed or took too long")
    faulthandler.dump_traceback_later(int(os.environ["SUITE_SECONDS"]), exit=True, file=sys.__stderr__)


def pytest_runtest_logreport(report: Any) -> None:
    """Keep how a part of a test ended, or a test within it."""
    why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else getattr(report.longrepr, "reprcrash", "")
    _ended.append((report.outcome, getattr(why, "message", why or "")))


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Note how a test ended: by its worst part."""
    _note(_worst(_ended)[0], nodeid, _worst(_ended)[1])
    _ended.clear()


def pytest_sessionfinish(session: Any) -> None:
    """Let a rank whose tests failed end well: gorun would end the others."""
    faulthandler.cancel_dump_traceback_later()
    session.exitstatus = 0


if __name__ == "__main__":
    sys.exit(main())
