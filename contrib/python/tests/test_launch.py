"""run(): a function on the ranks of a job of this machine, started from Python."""

import base64
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from tests_path import need

import gorun
from gorun import arguments, launch, sealed

BINARY = Path(__file__).resolve().parents[3] / "bin" / "gorun"


def place(offset, scale=1):
    """Say something and return where this rank is."""
    import gorun.numpy as hvd

    hvd.init()
    print("said by", hvd.rank())
    total = hvd.allreduce([float(hvd.rank())], op=hvd.Sum).tolist()
    return offset + scale * hvd.rank(), hvd.size(), total, "x" * 20_000


class Touch:
    """A pickle of it makes who loads it create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


# What a user types, where it comes from: the function and the class are in the main module.
TYPED = """
import sys, horovod
class Pair:
    def __init__(self, rank): self.rank = rank
def pair(*args):
    import os
    return Pair(int(os.environ["RANK"]))
print("the top of", __name__)
"""
CALL = (
    "found = horovod.run(pair, num_proc=2); "
    "print([one.rank for one in found], {type(one) is Pair for one in found})\n"
)
WITHOUT = "import sys; sys.modules['cloudpickle'] = None\n"


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

    def test_hostile_results(self):
        """Who has seen the lines of a result, as in a file of the output, cannot make the caller run code."""
        seen = Path(tempfile.mkdtemp()) / "seen"
        self.addCleanup(shutil.rmtree, seen.parent)
        own = base64.b64encode(pickle.dumps("a result")).decode()
        evil = base64.b64encode(pickle.dumps(Touch(str(seen)))).decode()
        forge = (
            "import os, sys; from gorun import call, sealed; key = os.environ['_GORUN_CALL_KEY']; "
            "print(sealed.mark(key), 'rank/0', 1, sys.argv[1])"
        )
        for text in evil, own:
            command = [str(BINARY), "-np", "1", sys.executable, "-c", forge, text]
            with self.assertRaisesRegex(RuntimeError, "printed as the result of rank/0"):
                launch._start(command, launch._call(os.getpgrp, (), {}, "a key"), "a key")
        self.assertFalse(seen.exists())
        good = sealed.seal("a key", "rank 1", pickle.dumps(7))
        self.assertEqual(sealed.unseal("a key", "rank 1", good), 7)
        for key, source in ("b key", "rank 1"), ("a key", "rank 2"):
            with self.assertRaises(RuntimeError):
                sealed.unseal(key, source, good)

    def test_the_key_is_not_printed(self):
        said = subprocess.run(
            [str(BINARY), "-np", "1", sys.executable, "-m", "gorun.call"], capture_output=True, text=True,
            env={**os.environ, **launch._call(os.getpgrp, (), {}, "the key of this job")}, check=True,
        )  # fmt: skip
        self.assertIn(sealed.mark("the key of this job"), said.stdout)
        self.assertNotIn("the key", said.stdout + said.stderr)

    def test_what_cannot_travel(self):
        with mock.patch.dict(sys.modules, {"cloudpickle": None}):
            with self.assertRaisesRegex(ValueError, "can be imported"):
                gorun.run(lambda: 1)
        with self.assertRaisesRegex(ValueError, "file"):
            gorun.run(place, ("x" * 2_000_000,))

    def said(self, text, *argv, status=0):
        """Return what Python prints, by lines; its program is a file or comes by standard input."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script.py")
            script.write_text(text)
            paths = f"{os.environ['PYTHONPATH']}:{Path(gorun.__path__[0]).parent / 'shim'}"
            run = subprocess.run(
                [sys.executable, *(argv or [script])], env={**os.environ, "PYTHONPATH": paths}, cwd=folder,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, input=text, timeout=120,
            )  # fmt: skip
        self.assertEqual(run.returncode, status, run.stdout)
        return run.stdout.splitlines()

    def test_what_the_main_module_defines(self):
        """A function sent by value needs neither a file nor a guard."""
        need("cloudpickle")
        for argv in (), ("-",), ("-c", TYPED + CALL):
            self.assertEqual(self.said(TYPED + CALL, *argv), ["the top of __main__", "[0, 1] {True}"])
        # A lock has no value to send: then the function is sent by its name.
        guarded = 'if __name__ == "__main__":\n    ' + CALL
        said = self.said(TYPED + "import threading\npair.lock = threading.Lock()\n" + guarded)
        self.assertIn("[1]<stdout>:the top of __mp_main__", said)
        self.assertIn("[0, 1] {True}", said)

    def test_what_the_main_module_defines_without_cloudpickle(self):
        guarded = 'if __name__ == "__main__":\n    ' + CALL
        self.assertIn("[0, 1] {True}", self.said(WITHOUT + TYPED + guarded))
        inside = ('if __name__ == "__main__":\n' + TYPED + CALL).replace("\n", "\n ")
        for text, argv, why in (
            (TYPED + CALL, (), "ranks import this script"),
            (inside, (), "Can't get attribute 'pair'"),
            (TYPED + CALL, ("-",), "a notebook, or standard input, defines it.* pip install cloudpickle"),
        ):
            said = self.said(WITHOUT + text, *argv, status=1)
            self.assertTrue([line for line in said if re.search(why, line)], said)
            self.assertLessEqual(sum("Traceback" in line for line in said), 1, said)

    def test_a_function_by_value_needs_the_same_python(self):
        main = base64.b85encode(pickle.dumps({"sys_path": [], "python": (3, 1)})).decode()
        environ = {**launch._call(os.getpgrp, (), {}, "a key"), "_GORUN_CALL_MAIN": main}
        environ = {**os.environ, **environ}
        call = [sys.executable, "-m", "gorun.call"]
        run = subprocess.run(call, env=environ, capture_output=True, text=True)
        self.assertRegex(run.stderr, r"^gorun: run: .* needs the caller's Python 3.1, not 3\.\d+\n$")

    def test_notebook(self):
        need("cloudpickle")
        need("ipykernel")
        from jupyter_client.manager import start_new_kernel

        shim = str(Path(gorun.__path__[0]).parent / "shim")
        with mock.patch.dict(os.environ, {"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{shim}"}):
            manager, client = start_new_kernel(kernel_name="python3")
        said = []

        def hear(message):
            said.append(message["content"].get("text", ""))

        try:
            cells = TYPED, CALL, "def bad(): raise SystemExit('why it ends')\nhorovod.run(bad)"
            told = [client.execute_interactive(c, timeout=60, output_hook=hear)["content"] for c in cells]
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
        self.assertEqual([content["status"] for content in told], ["ok", "ok", "error"], said)
        self.assertIn("[0, 1] {True}\n", "".join(said))
        self.assertIn("why it ends", "".join(said))
        self.assertIn("non-zero status", told[2]["evalue"])

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
