"""Tests of what the comparison computes; the programs it runs check their own results."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Callable
from unittest import mock

import peers
import programs
import running
from programs import Program, Setting, Sizes

STARTERS = (
    programs.gorun,
    programs.gorun_c,
    programs.gorun_torch,
    programs.torch_gloo,
    programs.open_mpi,
    programs.mpich,
)


class Test(unittest.TestCase):
    def test_sizes(self) -> None:
        self.assertEqual(Sizes(4, 1024, 16).list(), ["4", "64", "1024"])
        self.assertEqual(Sizes(4, 1023, 16).list(), ["4", "64"])
        self.assertEqual(programs.STEP.list(), ["step"])
        self.assertEqual(programs.span(programs.MANY, 0.5), ["--sizes", "many", "--min-time", "0.5"])

    def test_all_programs_get_the_same_sizes_and_time(self) -> None:
        for setting in Setting("", 3), Setting("", 3, "host1:1,host2:1,host3:1"):
            for starter in STARTERS:
                words = " ".join(starter(setting, Sizes(4, 64, 16), 0.25))
                self.assertIn("-np 3 ", words)
                self.assertIn("0.25", words)
                self.assertRegex(words, "4[, ]64|-b 4 -e 64 -f 16")
                self.assertEqual("host2" in words, bool(setting.hosts), words)

    def test_an_operation_between_the_hosts_of_the_user(self) -> None:
        args = argparse.Namespace(
            hosts="host1:2,host2", nic="eno1", ranks=[2], rounds=1, min_time=0.1, timeout=1.0
        )
        (setting,) = peers.settings(args)
        self.assertEqual((setting.ranks, setting.hosts), (3, "host1:2,host2"))
        found = [
            Program(name, "1", programs.gorun) for name in (programs.GORUN, programs.GLOO, programs.LIMIT)
        ]
        with mock.patch.object(peers, "compare", return_value=({programs.GORUN: {}}, [])) as compare:
            peers.Bench(args, found).operation("broadcast", setting, Sizes(4, 4, 4))
        self.assertEqual(
            [runner.name for runner in compare.call_args.args[0]], [programs.GORUN, programs.GLOO]
        )
        for starter in programs.gorun, programs.torch_gloo, programs.open_mpi, programs.mpich:
            words = " ".join(starter(setting, Sizes(4, 64, 16), 0.25))
            self.assertIn("broadcast", words)
            self.assertIn("host1:2,host2", words)
            self.assertIn("eno1", words)
            setting.nic = ""
            self.assertNotRegex(
                " ".join(starter(setting, Sizes(4, 64, 16), 0.25)), "eth0|GLOO_SOCKET|_if_include"
            )
            setting.nic = "eno1"

    def test_whose_mpi_it_is(self) -> None:
        with tempfile.TemporaryDirectory() as path:
            for name, says in ("mpirun", "mpirun (Open MPI) 4.2"), ("mpiexec", "HYDRA build details: 4.0"):
                Path(path, name).write_text(f"#!/bin/sh\necho '{says}'\n")
                Path(path, name).chmod(0o755)
            with mock.patch.dict(os.environ, PATH=path):
                programs.mpirun.cache_clear()
                self.assertEqual(programs.mpirun(programs.OPEN_MPI), ["mpirun"])
                self.assertEqual(programs.mpirun(programs.MPICH), ["mpiexec"])
                self.assertEqual(programs.whose(["mpicc"], "-show", ("mpich",)), "")
            programs.mpirun.cache_clear()

    def test_a_program_without_the_operation_says_so(self) -> None:
        with self.assertRaisesRegex(peers.Failed, "^no barrier$"):
            peers.once(["sh", "-c", 'echo \'{"why": "no barrier"}\''], 10)

    def test_make_bench_measures_the_horovod_that_is_there(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            shutil.copy(programs.ROOT / "Makefile", root)
            packages = Path("cmd/gorun/deps_test.go")  # the Makefile reads the names of pure packages there
            Path(root, packages).parent.mkdir(parents=True)
            shutil.copy(programs.ROOT / packages, Path(root, packages))

            def horovods(*words: str) -> list[str]:
                dry = ["make", "-n", "-C", root, "bench", "PYTHON=python", *words]
                # Without HVD, and the flags of a make around this.
                env = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": root}
                out = subprocess.run(dry, env=env, capture_output=True, text=True, check=True).stdout
                return re.findall(r"peers\.py(?:.* --horovod (\S+))?", out)

            self.assertEqual(horovods(), [""])
            self.assertEqual(horovods("HVD=/opt/python"), ["/opt/python"])
            venv = Path(root, "gorun-ci/horovod-0.28.1")
            venv.mkdir(parents=True)
            Path(venv, "ready").touch()
            self.assertEqual(horovods(), [f"{venv}/bin/python"])

    def test_horovod_by_a_path_from_here(self) -> None:
        with mock.patch.object(programs, "output", return_value="0.28.1"):
            horovod = programs.stock_horovod("build/horovod/bin/python")
        words = horovod.command(Setting("", 2), programs.MANY, 0.5)
        self.assertEqual(words[0], os.path.abspath("build/horovod/bin/horovodrun"))
        self.assertIn(os.path.abspath("build/horovod/bin/python"), words)

    def test_medians(self) -> None:
        runs = [{4: {"p50_us": p50, "p99_us": 10 * p50, "wrong": 0}} for p50 in (9.0, 1.0, 2.0)]
        self.assertEqual(peers.medians(runs), {4: {"p50_us": 2.0, "low": 1.0, "high": 9.0}})

    def test_table(self) -> None:
        results = {
            "gorun": {65536: {"p50_us": 20.0, "low": 18.0, "high": 1500.0}},
            "torch gloo": {65536: {"p50_us": 50.0, "low": 1.0, "high": 70.0}},
        }
        lines = peers.table(Setting("1 host", 2), "gorun", results, {65536: 5.0})
        self.assertEqual(
            lines[2], "| size | gorun (spread) | limit | of the limit | torch gloo | torch gloo / gorun |"
        )
        self.assertEqual(lines[4], "| 64 KiB | 20.0 (18.0–1,500) | 5.0 | 25 % | 50.0 | 2.50 |")

    def test_cpu_time_is_a_table_where_programs_count_it(self) -> None:
        runs = [{4: {"p50_us": 1.0, "cpu_us": cpu}, 64: {"p50_us": 1.0}} for cpu in (5.0, 3.0, 4.0)]
        results = {"gorun.h": peers.medians(runs), "limit": {4: {"p50_us": 1.0, "low": 1.0, "high": 1.0}}}
        lines = peers.cpu_table(Setting("1 host", 2), results)
        self.assertEqual(lines[2:], ["| size | gorun.h |", "|---:|---:|", "| 4 B | 4.0 |", ""])
        self.assertEqual(peers.cpu_table(Setting("1 host", 2), {"limit": results["limit"]}), [])

    def test_of_two_limits_the_better_one_counts(self) -> None:
        names = [programs.GORUN_PRIVATE, *programs.PRIVATE_LIMITS]
        found = [Program(name, "1", programs.gorun) for name in names]
        bench = peers.Bench(argparse.Namespace(rounds=1, min_time=0.1, timeout=1.0), found)
        results = {
            name: {4: {"p50_us": p50, "low": p50, "high": p50}} for name, p50 in zip(names, (8.0, 4.0, 2.0))
        }
        with mock.patch.object(peers, "compare", return_value=(results, [])):
            bench.measure(Setting("1 host", 2), Sizes(4, 4, 4), names)
        self.assertIn("| 4 B | 8.0 (8.0–8.0) | 2.0 | 25 % | 4.0 | 0.50 | 2.0 | 0.25 |", bench.lines)

    def test_what_of_communication_vanishes_behind_backward(self) -> None:
        def rows(*p50: float) -> dict[str, dict[str, float]]:
            return {name: {"p50_us": value} for name, value in zip(programs.OVERLAP_ROWS, p50)}

        results = {"gorun": rows(1020, 1000, 300, 100), "free": rows(1000, 1000, 100, 100), "failed": {}}
        self.assertEqual(peers.hidden(results), ["gorun: 90 % of 200.0 µs of communication vanish.", ""])

    def test_only_a_torch_that_has_it_is_measured_with_fsdp(self) -> None:
        self.assertEqual(
            [programs.has_fsdp(v) for v in ("1.13.0a0", "2.5.1", "2.6.0", "3.0")], [False] * 2 + [True] * 2
        )
        words = programs.sharded(programs.gorun_ddp)(Setting("", 2), programs.STEP, 0.5)
        self.assertIn("BENCH_STEP=fsdp", words)
        self.assertIn("BENCH_BACKEND=gorun", words)

    def test_the_first_python_with_torch(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            pythons = []
            for name, says in (("none", "exit 1"), ("first", "echo 2.0"), ("second", "echo 2.1")):
                Path(root, name).mkdir()
                pythons.append(Path(root, name, "python3"))
                pythons[-1].write_text(f"#!/bin/sh\n{says}\n")
                pythons[-1].chmod(0o755)
            path = ":".join(str(python.parent) for python in pythons)
            for this, expected in ((str(pythons[0]), str(pythons[1])), (str(pythons[2]), str(pythons[2]))):
                with (
                    mock.patch.dict(os.environ, PATH=f"{path}:/usr/bin:/bin"),
                    mock.patch.object(sys, "executable", this),
                ):
                    programs.python.cache_clear()
                    self.assertEqual(programs.python(), expected)
            programs.python.cache_clear()

    def test_a_row_need_not_be_of_a_size(self) -> None:
        results = {
            name: {"own cost of each": {"p50_us": p50, "low": p50, "high": p50}}
            for name, p50 in (("gorun", 4.0), ("stock Horovod", 22.0))
        }
        line = peers.table(Setting("1 host", 2), "gorun", results)[4]
        self.assertEqual(line, "| own cost of each | 4.0 (4.0–4.0) | 22.0 | 5.50 |")

    def test_what_hangs_or_fails_is_a_cell_of_the_table(self) -> None:
        row = '{"rows": [{"size": 4, "p50_us": 2.0, "wrong": 0}]}'
        scripts = {
            "gorun": f"echo '{row}'",
            "stock Horovod": f"echo '[0]<stdout>:{row}'",
            "hangs": "trap '' TERM; sleep 60 & wait; sleep 60",
            "fails": "exit 3",
            "lies": f"echo '{row}'".replace('"wrong": 0', '"wrong": 1'),
        }
        runners = [
            Program(name, "", lambda *_, script=script: ["sh", "-c", script])
            for name, script in scripts.items()
        ]
        setting = Setting("1 host", 2)
        since = time.monotonic()
        with mock.patch.object(running, "GRACE", 0.2), mock.patch("sys.stderr"):
            results, failures = peers.compare(runners, setting, Sizes(4, 4, 4), 1, 0.1, 0.5)
        self.assertLess(time.monotonic() - since, 20)
        self.assertEqual(
            failures,
            [
                "hangs failed in round 1 of 1: no end after 0.5 s.",
                "fails failed in round 1 of 1: exit status 3.",
                "lies failed in round 1 of 1: 1 elements are wrong.",
            ],
        )
        line = peers.table(setting, "gorun", results)[4]
        self.assertEqual(line, "| 4 B | 2.0 (2.0–2.0) | 2.0 | 1.00 | failed |  | failed |  | failed |  |")

    def test_without_torch_its_tables_say_so(self) -> None:
        found = [Program(programs.GORUN, "1", programs.gorun), Program(programs.HOROVOD, "1", programs.gorun)]
        bench = peers.Bench(argparse.Namespace(rounds=1, min_time=0.1, timeout=1.0), found)
        names = [programs.GORUN_TORCH, programs.GLOO, programs.HOROVOD]
        with mock.patch.object(peers, "compare") as compare:
            bench.measure(Setting("1 host, 2 ranks, from Python", 2), Sizes(4, 4, 4), names)
        compare.assert_not_called()
        missing = "Not measured: 1 host, 2 ranks, from Python: gorun's horovod.torch is not there."
        self.assertEqual(bench.lines, [missing, ""])

    def test_a_signal_ends_what_was_started(self) -> None:
        for number in running.SIGNALS:
            with tempfile.TemporaryDirectory() as directory:
                cleaned, pid = Path(directory, "cleaned"), Path(directory, "pid")
                spins = f"echo $$ >{pid}.new; mv {pid}.new {pid}; while :; do :; done"
                program = (
                    "import pathlib, running\nrunning.end_on_signals()\n"
                    f"try:\n    running.run(['sh', '-c', {spins!r}], None, '/')\n"
                    f"finally:\n    pathlib.Path({str(cleaned)!r}).touch()"
                )
                bench = subprocess.Popen(
                    [sys.executable, "-B", "-c", program], cwd=programs.HERE, stderr=subprocess.DEVNULL
                )
                self.wait(pid.exists)
                bench.send_signal(number)
                bench.wait(20)
                self.assertTrue(cleaned.exists())
                self.wait(lambda pid=pid: not Path("/proc", pid.read_text().strip()).exists())

    def test_what_was_started_ends_with_whatever_ends_the_program(self) -> None:
        for number in (*running.SIGNALS, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as directory:
                cleaned, pid = Path(directory, "cleaned"), Path(directory, "pid")
                spins = f"echo $$ >{pid}.new; mv {pid}.new {pid}; while :; do :; done"
                program = (
                    "import pathlib, running\n"
                    "def main():\n"
                    f"    try:\n        running.run(['sh', '-c', {spins!r}], None, '/')\n"
                    f"    finally:\n        pathlib.Path({str(cleaned)!r}).touch()\n"
                    "running.guard(main)"
                )
                bench = subprocess.Popen([sys.executable, "-B", "-c", program], cwd=programs.HERE)
                self.wait(pid.exists)
                bench.send_signal(number)
                self.assertEqual(bench.wait(20), -9 if number == signal.SIGKILL else 128 + number)
                self.wait(cleaned.exists)
                self.wait(lambda pid=pid: not Path("/proc", pid.read_text().strip()).exists())

    def test_the_exit_status_of_what_is_guarded(self) -> None:
        for main, status in (("lambda: None", 0), ("lambda: sys.exit(3)", 3), ("lambda: 1 / 0", 1)):
            program = f"import running, sys\nrunning.guard({main})"
            bench = subprocess.run(
                [sys.executable, "-B", "-c", program], cwd=programs.HERE, stderr=subprocess.DEVNULL
            )
            self.assertEqual(bench.returncode, status)

    def test_a_signal_amid_a_start(self) -> None:
        """A signal that comes while a program starts ends that program too."""
        with tempfile.TemporaryDirectory() as directory:
            pid = Path(directory, "pid")
            program = (
                "import os, pathlib, running, signal, subprocess\n"
                "class Slow(subprocess.Popen):\n"
                "    def __init__(self, *args, **kwargs):\n"
                "        super().__init__(*args, **kwargs)\n"
                f"        pathlib.Path({str(pid)!r}).write_text(str(self.pid))\n"
                "        os.kill(os.getpid(), signal.SIGTERM)\n"
                "subprocess.Popen = Slow\n"
                "running.end_on_signals()\n"
                "running.run(['sleep', '60'], None, '/')"
            )
            bench = subprocess.run([sys.executable, "-B", "-c", program], cwd=programs.HERE, timeout=20)
            self.assertEqual(bench.returncode, 128 + signal.SIGTERM)
            self.wait(lambda: not Path("/proc", pid.read_text()).exists())

    def wait(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_human(self) -> None:
        for size, want in {
            4: "4 B",
            1000: "1000 B",
            1 << 16: "64 KiB",
            1 << 28: "256 MiB",
            1 << 30: "1 GiB",
        }.items():
            self.assertEqual(peers.human(size), want)

    def test_preamble_says_what_is_missing_and_when_not_to_trust(self) -> None:
        found = [Program(programs.GORUN, "1", programs.gorun)]
        text = "\n".join(peers.preamble(found, 5, 1000.0))
        self.assertIn("not installed: torch gloo.", text)
        self.assertIn("not installed: Open MPI.", text)
        self.assertIn("do not trust", text)
        self.assertNotIn("do not trust", "\n".join(peers.preamble(found, 5, 0.0)))


if __name__ == "__main__":
    unittest.main()
