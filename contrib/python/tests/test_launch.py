"""run(): a function on the ranks of a job of this machine, started from Python."""

import io
import os
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from tests_path import need

import gorun
from gorun import arguments, launch

BINARY = Path(__file__).resolve().parents[3] / "bin" / "gorun"


def place(offset, scale=1):
    """Say something and return where this rank is."""
    import gorun.numpy as hvd

    hvd.init()
    print("said by", hvd.rank())
    total = hvd.allreduce([float(hvd.rank())], op=hvd.Sum).tolist()
    return offset + scale * hvd.rank(), hvd.size(), total, "x" * 20_000


def fail():
    """End like a program that failed."""
    sys.exit(7)


class LaunchTest(unittest.TestCase):
    def setUp(self):
        if not BINARY.exists():
            self.skipTest(f"{BINARY} is not built: make build")
        paths = os.pathsep.join([str(Path(__file__).resolve().parent), str(Path(gorun.__path__[0]).parent)])
        patch = mock.patch.dict(os.environ, {"GORUN": str(BINARY), "PYTHONPATH": paths})
        patch.start()
        self.addCleanup(patch.stop)

    def test_results_by_rank(self):
        need("numpy")
        said = io.StringIO()
        with redirect_stdout(said):
            results = gorun.run(place, (10,), {"scale": 2}, num_proc=3)
        self.assertEqual(results, [(10 + 2 * rank, 3, [3.0], "x" * 20_000) for rank in range(3)])
        self.assertEqual(sorted(said.getvalue().split("\n")),
                         ["", *(f"[{rank}]<stdout>:said by {rank}" for rank in range(3))])  # fmt: skip

    def test_a_job_that_fails(self):
        """Programs look for the sentence of Horovod's."""
        said = "Horovod detected that one or more processes exited with non-zero status.*status 7"
        with self.assertRaisesRegex(RuntimeError, said):
            gorun.run(fail, num_proc=2)
        with self.assertRaisesRegex(RuntimeError, said):
            launch._run(arguments.parse_args(["-np", "2", sys.executable, "-c", "raise SystemExit(7)"]))
        with self.assertRaisesRegex(RuntimeError, "non-zero status.* run no program"):
            launch._run(launch._HorovodArgs())

    def test_arguments_as_an_object(self):
        """A script may fill in what horovod.runner has for it, instead of calling run()."""
        args = launch._HorovodArgs()
        self.assertEqual((args.num_proc, args.hosts, args.verbose, args.run_func), (1, None, None, None))
        args.num_proc, args.run_func, args.nics, args.verbose, args.use_mpi = 2, os.getpgrp, [], 0, False
        self.assertEqual(arguments.flags(args), ["-np", "2"])
        self.assertEqual(len(set(launch._run(args))), 2, "two ranks ran it")
        with tempfile.TemporaryDirectory() as folder:
            touch = "import os, sys; open(sys.argv[1] + '/' + os.environ['HOROVOD_RANK'], 'w').close()"
            args = arguments.parse_args(["-np", "2", sys.executable, "-c", touch, folder])
            self.assertIsNone(launch._run(args))
            self.assertEqual(sorted(os.listdir(folder)), ["0", "1"])

    def test_what_cannot_travel(self):
        with mock.patch.dict(sys.modules, {"cloudpickle": None}):
            with self.assertRaisesRegex(ValueError, "can be imported"):
                gorun.run(lambda: 1)
        with self.assertRaisesRegex(ValueError, "file"):
            gorun.run(place, ("x" * 2_000_000,))

    def test_flags(self):
        seen = []

        def start(command, *_):
            seen.append(command)
            return {0: 1, 1: 2}, 0

        with mock.patch.object(launch, "_start", start):
            with self.assertWarnsRegex(DeprecationWarning, "use num_proc"):
                results = gorun.run(fail, np=2, hosts="a:1,b:1", ssh_port=2222, executable="py")
            self.assertEqual(results, [1, 2])
            self.assertEqual(gorun.run(fail, num_proc=4, min_num_proc=2, cooldown_range=(1, 9)), [1, 2])
            with self.assertRaisesRegex(RuntimeError, r"no result came from ranks \[2\]"):
                gorun.run(fail, num_proc=3)
        head = [str(BINARY), "-np"]
        self.assertEqual(seen[0], [*head, "2", "-H", "a:1,b:1", "-p", "2222", "py", "-m", "gorun.call"])
        self.assertIn("--min-np 2 --blacklist-cooldown-range 1 9", " ".join(seen[1]))

    def test_interfaces_by_list_and_by_name(self):
        seen = []

        def start(command, *_):
            seen.append(command[command.index("--network-interfaces") + 1])
            return {0: 1}, 0

        with mock.patch.object(launch, "_start", start):
            gorun.run(fail, network_interfaces=["eth0", "eth1"])
            gorun.run(fail, network_interfaces="eth0,eth1")
            with self.assertWarnsRegex(DeprecationWarning, "use network_interfaces"):
                gorun.run(fail, network_interface="eth0,eth1")
        self.assertEqual(seen, ["eth0,eth1"] * 3)

    def test_arguments_that_exclude_each_other(self):
        with self.assertRaisesRegex(ValueError, "hosts and hostfile"):
            gorun.run(fail, hosts="a:1", hostfile="hosts")
        with self.assertRaisesRegex(ValueError, "use_gloo and use_mpi"):
            gorun.run(fail, use_gloo=True, use_mpi=True)


if __name__ == "__main__":
    unittest.main()
