"""Jobs whose ranks are processes that gorun did not start: gorun.seats, with this test as the engine."""

import os
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock

import gorun
from gorun.seats import TOKEN, job, seat, step

HERE = Path(__file__).resolve().parent
BINARY = HERE.parents[2] / "bin" / "gorun"


def start_daemon(host, order, ended):
    """Start a daemon as an engine would on its hosts; both are this machine."""
    threading.Thread(target=lambda: ended(step.run(order, host)), daemon=True).start()


class SeatsTest(unittest.TestCase):
    def setUp(self):
        if not BINARY.exists():
            self.skipTest(f"{BINARY} is not built: make build")
        paths = os.pathsep.join([str(HERE), str(Path(gorun.__path__[0]).parent)])
        patch = mock.patch.dict(os.environ, {"GORUN": str(BINARY), "PYTHONPATH": paths})
        patch.start()
        self.addCleanup(patch.stop)
        self.token = job.new_token()

    def test_a_host_that_cannot_run_gorun(self):
        self.assertEqual(step.unable(), "")
        for binary, why in {
            "/nonexistent": "^start gorun: .*No such file or directory: '/nonexistent'",
            "/etc/passwd": "^start gorun: .*Permission denied",
            "/bin/false": "^gorun version: exit status 1$",
        }.items():
            with mock.patch.dict(os.environ, {"GORUN": binary}):
                self.assertRegex(step.unable(), why)

    def engine(self, host, index, stderr=None):
        """Start a process of the engine."""
        process = subprocess.Popen(
            [sys.executable, HERE / "seated.py", self.token, host, str(index)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "waits\n")
        return process

    def job(self, flags, start=start_daemon):
        running = job.Job(flags, self.token, start)
        self.addCleanup(running.stop)
        return running

    def three(self):
        """Start three ranks on two hosts."""
        ranks = [self.engine("one", 0), self.engine("one", 1), self.engine("two", 0)]
        running = self.job(["-np", "3", "-H", "one:2,two:1"])
        for process in ranks:
            say(process, "take")
        heard = [process.stdout.readline().split() for process in ranks]
        self.assertEqual(heard, [[str(r), str(r), "3", str(r % 2), "True"] for r in range(3)])
        return ranks, running

    def test_ranks_leave(self):
        ranks, running = self.three()
        for process in ranks:
            say(process, "leave 0")
        self.assertEqual({process.stdout.readline() for process in ranks}, {"left\n"})
        self.assertEqual(running.wait(60), 0)

    def test_a_rank_leaves_at_once(self):
        process = self.engine("one", 0)
        running = self.job(["-np", "1", "-H", "one"])
        say(process, "pass")
        self.assertEqual(process.stdout.readline(), "passed\n")
        self.assertEqual(running.wait(60), 0)

    def test_a_rank_fails(self):
        ranks, running = self.three()
        say(ranks[1], "leave 7")
        self.assertEqual(running.wait(60), 7)
        self.assertIn("rank 1 on one exited with status 7", running.failure())
        self.assertIn("the function failed", "\n".join(running._said))

    def test_a_process_is_killed(self):
        ranks, running = self.three()
        ranks[2].kill()
        ranks[2].wait()
        self.assertEqual(running.wait(60), 1)
        self.assertIn("rank 2 on two exited with status 1", running.failure())
        self.assertIn(f"the process of this rank ended: pid {ranks[2].pid}", "\n".join(running._said))

    def test_a_daemon_that_cannot_start(self):
        running = self.job(["-np", "1", "-H", "three"], lambda host, order, ended: ended("no such\nnode"))
        self.assertNotEqual(running.wait(60), 0)
        self.assertIn("three: no such node (hint: gorun and its Python package have to be", running.failure())

    def test_the_step_is_the_callers(self):
        lost = mock.Mock(_said=["gorun: error: two: run: silent for 30s", "gorun: hint: is the host up?"])
        self.assertEqual(job.Job.failure(lost), "two: silent for 30s (hint: is the host up?)")

    def test_every_host_fails(self):
        process = self.engine("one", 0)
        flags = ["-np", "2", "-H", "one,two", "--network-interfaces", "nonexist"]
        running = self.job(flags)
        self.assertNotEqual(running.wait(60), 0)
        said = r"^2 of 2 hosts failed; one, two: start daemon: find address: none of nonexist is .* \(hint: "
        self.assertRegex(running.failure(), said)
        process.kill()

    def test_a_daemon_that_never_ends(self):
        asked = threading.Event()
        running = self.job(["-np", "1", "-H", "one"], lambda host, order, ended: asked.set())
        with mock.patch.object(threading, "excepthook") as raised:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as nothing:
                nothing.connect(running._listener.getsockname())
            self.assertTrue(asked.wait(60))
            running.stop()
            serving = [thread for thread in threading.enumerate() if thread.name == job.SERVES]
            for thread in [*running._threads, *serving]:
                thread.join(60)
                self.assertFalse(thread.is_alive(), "it ends with gorun")
        raised.assert_not_called()

    def test_no_process_takes_the_seat(self):
        environ = {TOKEN: self.token, "HOROVOD_HOSTNAME": "one", "GORUN_LOCAL_RANK": "0"}
        with self.assertRaisesRegex(TimeoutError, "no process on one took"):
            seat.find(environ, 0.0)

    def test_no_seat_comes(self):
        process = self.engine("one", 0, subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        say(process, "take 0.01")
        self.assertIn("NoSeat: gorun started no rank on one for this process", process.stderr.read())
        self.assertEqual(process.wait(60), 1)

    def test_what_a_rank_gets(self):
        environ = {"GORUN_RANK": "1", "RANK": "1", "PATH": "/bin", "PYTHONPATH": "x", TOKEN: "secret"}
        self.assertEqual(set(seat.given(environ)), {"GORUN_RANK", "RANK"})


def say(process, command):
    """Give a process a command."""
    process.stdin.write(command + "\n")
    process.stdin.flush()
