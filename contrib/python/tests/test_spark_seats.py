"""How the tasks of Spark reach the driver, and what becomes of the outcomes of ranks."""

import io
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import types
import unittest
from unittest import mock

spark = types.ModuleType("pyspark")
spark.InheritableThread = spark.SparkContext = None
spark.cloudpickle = pickle
sys.modules.setdefault("pyspark", spark)  # where it is not installed

from gorun import sealed  # noqa: E402
from gorun.exceptions import HorovodInternalError  # noqa: E402
from gorun.seats import rank  # noqa: E402
from gorun.spark import channel, outcome, runner, tasks  # noqa: E402

if sys.modules["pyspark"] is spark:
    del sys.modules["pyspark"]


class SparkTest(unittest.TestCase):
    def test_hosts_of_a_job_of_fixed_size(self):
        self.assertEqual(runner.placed({"a": 2, "b": 1, "c": 3}, 5), "a:2,b:1,c:2")
        self.assertEqual(runner.placed({"a": 2, "b": 1}, 2), "a:2")

    def test_why_a_task_failed(self):
        error = "An error occurred while calling.\n: Job aborted, most recent failure: Lost task 0.3"
        self.assertEqual(runner.reason(Exception(error)), "Lost task 0.3")
        error += "\nTraceback:\nModuleNotFoundError: No module named 'gorun'\n\n\tat org"
        self.assertEqual(runner.reason(Exception(error)), "ModuleNotFoundError: No module named 'gorun'")
        self.assertEqual(runner.reason(Exception()), "Spark gave no reason")

    def test_a_result_that_cannot_be_sent(self):
        lost = pickle.loads(outcome.dump(outcome.Outcome(3, "a", threading.Lock())))
        self.assertEqual((lost.rank, lost.result), (3, None))
        self.assertRegex(lost.error, "pickle")

    def test_sizes_of_an_elastic_job(self):
        self.assertEqual(runner.sizes(4, None, None), (4, 4, 4))
        self.assertEqual(runner.sizes(4, 2, 8), (4, 2, 8))
        for wrong in (0, None, None), (4, 5, None), (4, 0, None), (4, None, 3):
            with self.assertRaisesRegex(ValueError, "^run_elastic: a job has 1 <= min_num_proc"):
                runner.sizes(*wrong)

    def test_when_an_elastic_job_begins(self):
        states = [(slots, late) for slots in range(5) for late in (False, True)]
        begun = [(slots, late) for slots, late in states if runner.begins(slots, 4, 2, late)]
        self.assertEqual(begun, [(2, True), (3, True), (4, False), (4, True)])

    def test_names_of_executors(self):
        names = tasks.Names()
        found = [names.of(*it) for it in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("a", "3"))]
        self.assertEqual(found, ["a", "b", "a-2", "a", "a-3"])

    def test_sealed(self):
        sealed = channel.seal(b"token", b"context", b"secret")
        self.assertNotIn(b"secret", channel.base64.b64decode(sealed))
        self.assertEqual(channel.unseal(b"token", b"context", sealed), b"secret")
        self.assertIsNone(channel.unseal(b"other", b"context", sealed))
        self.assertIsNone(channel.unseal(b"token", b"other", sealed))
        self.assertIsNone(channel.unseal(b"token", b"context", sealed[:-4] + b"AAAA"))
        self.assertIsNone(channel.unseal(b"token", b"context", b"x"))

    def connected(self, port, token):
        """Connect as a task."""
        found = channel.Channel(socket.create_connection(("127.0.0.1", port), 60), token, "task", "driver")
        self.addCleanup(found.close)
        return found

    def test_messages_in_order(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        near = socket.create_connection(listener.getsockname())
        far = listener.accept()[0]
        made = []
        thread = threading.Thread(target=lambda: made.append(channel.Channel(far, "token", "driver", "task")))
        thread.start()
        task = channel.Channel(near, "token", "task", "driver")
        thread.join()
        for one in (task, made[0]):
            self.addCleanup(one.close)
        task.send("first")
        self.assertEqual(made[0].receive(), "first")
        task._sent = 0  # as one who repeats the first message
        task.send("first")
        with self.assertRaises(channel.Refused):
            made[0].receive()
        with self.assertRaisesRegex(ValueError, "65538 bytes"):
            task.send("x" * channel.LARGEST)

    def test_strangers_have_little_time(self):
        with mock.patch.object(tasks, "HELLO_SECONDS", 0.2), mock.patch.object(tasks, "STRANGERS", 1):
            there = tasks.Tasks("token", "127.0.0.1")
            self.addCleanup(there.close)
            silent = socket.create_connection(("127.0.0.1", there.port), 60)
            self.addCleanup(silent.close)
            with silent.makefile("rb") as lines:
                self.assertEqual(len(lines.readline()), 2 * channel.SALT + 1)
                self.assertEqual(lines.readline(), b"", "it is turned away")
        task = self.connected(there.port, "token")
        task.send({"machine": "a", "host": "1", "unable": ""})
        self.assertTrue(there.wait(lambda slots: slots == {"a": 1}))

    def test_tasks(self):
        there, said = tasks.Tasks("token", "127.0.0.1"), []
        self.addCleanup(there.close)
        stranger = self.connected(there.port, "other")
        stranger.send({"machine": "a", "host": "0", "unable": ""})
        self.assertIsNone(stranger.receive(), "a stranger is turned away")
        first = self.connected(there.port, "token")
        first.send({"machine": "a", "host": "1", "unable": ""})
        there.wait(lambda slots: slots == {"a": 1})
        there.start("a", json.dumps({"key": 1}).encode(), said.append)
        self.assertEqual(first.receive(), {"order": {"key": 1}, "host": "a"})
        there.start("a", b"{}", said.append)
        self.assertEqual(said.pop(), "Spark has no task there any more", "this one runs a daemon already")
        first.send({"ended": "no memory"})
        first.close()
        there.wait(lambda slots: not slots)
        self.assertEqual(said, ["no memory"])
        unable = self.connected(there.port, "token")
        unable.send({"machine": "b", "host": "1", "unable": "no gorun"})
        self.assertIsNone(unable.receive())
        self.assertEqual((there.unable, there.slots()), ("b: no gorun", {}))

    def test_a_task_is_lost(self):
        there, said = tasks.Tasks("token", "127.0.0.1"), []
        self.addCleanup(there.close)
        both = [self.connected(there.port, "token") for _ in range(2)]
        for one in both:
            one.send({"machine": "a", "host": "1", "unable": ""})
        there.wait(lambda slots: slots == {"a": 2})
        there.start("a", b"{}", said.append)
        for one in both:
            one.close()
        there.wait(lambda slots: not slots)
        self.assertEqual(said, ["Spark lost the task that ran gorun there"])
        there.end(0.0)
        late = self.connected(there.port, "token")
        late.send({"machine": "a", "host": "2", "unable": ""})
        self.assertEqual(late.receive(), {"end": True})

    def test_the_program_of_ranks(self):
        found = outcome.Outcomes("run", "key", io.StringIO())
        for number, value in enumerate(("x" * 3 * sealed.LINE, 0)):
            for line in self.ran(number, (divmod, (7, value), {}) if number else (str, (value,), {})):
                found.take(line)
        self.assertEqual(found.results(), ["x" * 3 * sealed.LINE])
        said = "^run: rank 1 on h: ZeroDivisionError: .*; rank 1 exited\nTraceback"
        self.assertRegex(str(found.failure("rank 1 exited")), said)
        found.take("more\n")
        self.assertEqual(found._output.getvalue(), "more\n")
        with self.assertRaisesRegex(RuntimeError, "no rank has a result"):
            outcome.Outcomes("run", "key", io.StringIO()).results()

    def taken(self, *found):
        """Return the outcomes of ranks as their output brings them."""
        into = outcome.Outcomes("run", "key", io.StringIO())
        for one in found:
            for line in sealed.lines("key", f"h/{one.rank}/{one.size}", outcome.dump(one)):
                into.take(line)
        return into

    def test_results_of_the_last_world(self):
        before = [outcome.Outcome(3, "a", "old", size=4)]
        last = [outcome.Outcome(number, "a", number, size=2) for number in (1, 0)]
        self.assertEqual(self.taken(*before, *last).results(), [0, 1])
        with self.assertRaisesRegex(RuntimeError, "rank 0 of 2 has ended well, but without a result"):
            self.taken(last[0]).results()
        self.assertEqual(self.taken(outcome.Outcome(1, "a", "alone")).results(), ["alone"], "of no world")

    def test_results_of_a_job_of_fixed_size(self):
        all_of_them = [outcome.Outcome(number, "a", number, size=number) for number in (1, 0)]
        self.assertEqual(self.taken(*all_of_them).results(2), [0, 1], "also if some left their world")
        with self.assertRaisesRegex(RuntimeError, "^run: rank 2 of 3 has ended well, but without a result"):
            self.taken(*all_of_them).results(3)

    def test_the_cause(self):
        of_another = outcome.failed(0, "host0", HorovodInternalError("rank 1 left"))
        found = self.taken(outcome.failed(1, "host1", KeyError("k")), of_another)
        self.assertRegex(str(found.failure("it ended")), "^run: rank 1 on host1: KeyError: 'k'; it ended\n")
        alone = str(self.taken(of_another).failure("rank 1 died"))
        self.assertRegex(alone, "^run: rank 1 died; rank 0 on host0: HorovodInternalError: rank 1 left\n")

    def test_output_that_cannot_be_taken(self):
        found = self.taken(outcome.Outcome(0, "a", 7, size=1))
        found.take(f"{sealed.mark('key')} h/1 1 AAAA\n")
        found.take("more\n")
        self.assertEqual(found._output.getvalue(), "more\n", "what comes after it is read")
        with self.assertRaisesRegex(RuntimeError, "cannot be taken"):
            found.results()

    def test_hostile_outcomes(self):
        """Who has seen the lines of an outcome cannot give the driver a pickle."""
        found = self.taken(outcome.Outcome(0, "a", 7, size=1))
        text = channel.base64.b64encode(pickle.dumps(outcome.Outcome(0, "a", 8, size=1))).decode()
        found.take(f"{sealed.mark('key')} h/0/1 1 {text}\n")
        self.assertEqual([one.result for one in found.found.values()], [7])
        with self.assertRaisesRegex(RuntimeError, "printed as the result of h/0/1"):
            found.results()

    def ran(self, number, call):
        """Run a function as the program of a rank does; return the lines of its output."""
        file = os.memfd_create("kept")
        with open(file, "wb", closefd=False) as memory:
            pickle.dump(("key", sys.path, os.getcwd(), {}, pickle.dumps(call)), memory)
        self.addCleanup(os.close, file)
        more = {"HOROVOD_HOSTNAME": "h", "HOROVOD_RANK": str(number)}
        more[rank.KEPT] = f"/proc/{os.getpid()}/fd/{file}"
        code = (
            "import pickle, sys, types; it = types.ModuleType('pyspark'); it.cloudpickle = pickle; "
            "it.InheritableThread = it.SparkContext = None; "
            "sys.modules['pyspark'] = it; from gorun.seats import rank; sys.exit(rank.main())"
        )
        paths = os.pathsep.join(sys.path)
        ended = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **more, "PYTHONPATH": paths}, text=True,
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        self.assertEqual(ended.returncode, number, ended.stderr)
        return ended.stdout.splitlines(keepends=True)

if __name__ == "__main__":
    unittest.main()
