"""Run torch's own tests of torch.distributed, as its wheel has them, by ranks that gorun started.

    /path/to/python contrib/tools/torch_suite.py [--backend gorun] [--np 3] [--part] [PATTERN ...]

torch's class spawns processes for each test. Here the ranks of one job run one test after the other, each in
a process group of its own. A test that fails ends the job, and another one goes on with the next. Tests that
ask for gloo by name get the backend, so that what torch keeps for gloo is tested too; with --backend gloo
they are the control. EXCEPTIONS are expected to fail.
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

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120  # for a test
SKIPPED = range(72, 90)  # exit codes of torch's tests that skip

GPU = "cuda|nccl|gpu|hip"  # in names of tests that need one; some do not check for it

# Tests that fail on a backend, and why.
EXCEPTIONS = {
    "gorun": {
        "test_get_backend": "asks for gloo by name",
        "test_monitored_barrier_gloo_rank_0_timeout": "without any time rank 0 names rank 1, not itself",
    },
    "gloo": {
        "test_all_to_all": "gloo wants tensors of one size",
        "test_all_to_all_complex": "gloo wants tensors of one size",
        "test_all_to_all_full_group": "gloo wants tensors of one size",
    },
}

# Tests that fail whatever the backend is, and why.
ANYWHERE = {
    "test_SyncBatchNorm_process_group": "wants torchvision, and does not look whether it is there",
    "test_batch_isend_irecv_mixed_backend_err": "wants a GPU, and does not look whether there is one",
    "test_batch_isend_irecv_op_err": "wants a GPU, and does not look whether there is one",
}

# For make torch2: some of each kind.
PART = "barrier|broadcast|all_reduce|all_gather|all_to_all|reduce_scatter|send_recv|gather|scatter|ddp_.*hook|uneven"


def main() -> int:
    """Run the tests, and report how they ended. Return how many did not end as they should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gorun", default=str(ROOT / "bin" / "gorun"))
    parser.add_argument("--backend", default="gorun")
    parser.add_argument("--np", type=int, default=4)
    parser.add_argument("--part", action="store_true", help="only some tests of each kind")
    parser.add_argument("--verbose", action="store_true", help="name the tests that end as expected, too")
    parser.add_argument("patterns", nargs="*", help="regular expressions: only tests whose names have one")
    args = parser.parse_args()
    patterns = args.patterns or ([PART] if args.part else [""])
    os.environ.update(TORCH_SUITE_BACKEND=args.backend, BACKEND="gloo", WORLD_SIZE=str(args.np))
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    tests = [name for name in dir(_make_class()[0]) if name.startswith("test_")]
    tests = [name for name in tests if any(re.search(pattern, name) for pattern in patterns)]
    tests = [name for name in tests if name not in ANYWHERE and not re.search(GPU, name)]
    if not tests:
        parser.error(f"none of torch's tests is called {' or '.join(patterns)}")
    wrong = 0
    counts: dict[str, int] = {}
    for name, outcome, text in _outcomes(args, tests):
        expected = name in EXCEPTIONS.get(args.backend, {})
        if (outcome == "failed") != expected:
            wrong += 1
            print(f"{name}: {outcome}, which is not expected\n{text}", flush=True)
        elif args.verbose:
            print(f"{name}: {outcome}", flush=True)
        outcome = "failed as expected" if outcome == "failed" and expected else outcome
        counts[outcome] = counts.get(outcome, 0) + 1
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"torch's distributed_test.py on {args.backend}, {args.np} ranks: {summary}")
    return wrong


def _outcomes(args, tests):
    """Yield name, outcome and message of each test."""
    while tests:
        with tempfile.TemporaryDirectory(prefix="torch-suite-") as directory:
            Path(directory, "tests").write_text("\n".join(tests))
            began = time.monotonic()
            os.environ["TEMP_DIR"] = directory
            os.environ["INIT_METHOD"] = f"file://{directory}/init_dir/shared_init_file"
            job = subprocess.run(
                [args.gorun, "-np", str(args.np), sys.executable, __file__, "rank", directory],
                capture_output=True, text=True, errors="replace", check=False,
            )  # fmt: skip
            ended = {}
            for path in Path(directory).glob("outcomes.*"):
                for line in path.read_text().splitlines():
                    name, outcome = line.split()
                    ended.setdefault(name, []).append(outcome)
        over = [name for name in tests if len(ended.get(name, ())) == args.np]
        for name in over:
            yield name, "skipped" if "skipped" in ended[name] else "passed", ""
        tests = tests[len(over) :]
        if tests or job.returncode:  # a job may also fail at its end, after all tests
            seconds = time.monotonic() - began
            name = tests[0] if tests else "the end of the job"
            yield name, "failed", f"{job.stdout[-6000:]}\n{job.stderr[-6000:]}\n({seconds:.0f} s)"
            tests = tests[1:]


def _make_class():
    """Return torch's tests, and its module."""
    from torch.testing._internal.distributed import distributed_test as torch_tests

    class Suite(torch_tests.TestDistBackend, torch_tests.DistributedTest._DistTestBase):
        pass

    return Suite, torch_tests


class Ranks:
    """This rank of the job, which runs the tests that a directory lists."""

    def __init__(self, directory):
        self._directory = Path(directory)
        self._suite, self._torch_tests = _make_class()
        from torch import distributed as dist
        from torch.testing._internal import common_utils

        self._dist, self._common = dist, common_utils
        self._rank = int(os.environ["RANK"])
        self._backend = os.environ["TORCH_SUITE_BACKEND"]
        for name in "init_process_group", "new_group":
            setattr(dist, name, self._with_backend(getattr(dist, name)))
        sync = self._torch_tests.Barrier.sync
        self._torch_tests.Barrier.sync = lambda wait_for=None, timeout=0: sync(wait_for, SECONDS)

    def _with_backend(self, make):
        def call(*args, **kwargs):
            args = [self._backend if arg == "gloo" else arg for arg in args]
            if kwargs.get("backend") == "gloo":
                kwargs["backend"] = self._backend
            return make(*args, **kwargs)

        return call

    def run(self):
        """Run all tests, and keep how they end."""
        if self._backend == "gorun":
            import gorun.torch.distributed  # noqa: F401 (registers the backend)
        with open(self._directory / f"outcomes.{self._rank}", "w") as outcomes:
            for number, name in enumerate((self._directory / "tests").read_text().split()):
                faulthandler.dump_traceback_later(SECONDS, exit=True)
                outcome = self._run_one(number, name)
                outcomes.write(f"{name} {outcome}\n")
                outcomes.flush()

    def _run_one(self, number, name):
        import unittest

        directory = self._directory / str(number)
        for part in "barrier", "test_dir", "init_dir":
            os.makedirs(directory / part, exist_ok=True)
        os.environ["TEMP_DIR"] = str(directory)
        self._torch_tests.INIT_METHOD = f"file://{directory}/init_dir/shared_init_file"
        self._torch_tests.Barrier.barrier_id = 0
        test = self._suite(name)
        test.rank, test.file_name = self._rank, str(directory / "init")
        test.skip_return_code_checks = []
        size = int(os.environ["WORLD_SIZE"])
        timeout = self._torch_tests.CUSTOM_PG_TIMEOUT.get(name, self._torch_tests.default_pg_timeout)
        self._dist.init_process_group(
            self._backend, init_method=f"file://{directory}/init", world_size=size, rank=self._rank,
            timeout=self._torch_tests.timedelta(seconds=timeout),
        )  # fmt: skip
        self._common.set_rng_seed()
        outcome = "passed"
        try:
            getattr(test, name)()
        except unittest.SkipTest:
            outcome = "skipped"
        except SystemExit as end:
            if end.code not in SKIPPED:
                raise
            outcome = "skipped"
        self._torch_tests.Barrier.sync(size)
        if self._dist.is_initialized():
            self._dist.destroy_process_group()
        return outcome


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        Ranks(sys.argv[2]).run()
    else:
        sys.exit(1 if main() else 0)
