"""Jobs in a Spark application with three executors on this machine: make spark.

PYTHONPATH has a gorun, and GORUN names its binary. Each executor counts as a host of its own.
"""

import functools
import importlib
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import horovod.spark
import pyspark
from leftovers import left
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from gorun.spark import member, runner


def place(more):
    """Return where this rank is, and a sum over all."""
    import gorun.numpy as hvd

    hvd.init()
    total = hvd.allreduce([float(hvd.rank() + more)], op=hvd.Sum).tolist()
    return hvd.rank(), hvd.size(), hvd.local_size(), total


def fail(rank):
    """Fail on one rank, while the others wait for it."""
    import gorun.numpy as hvd

    hvd.init()
    if hvd.rank() == rank:
        raise KeyError("bad luck")
    return hvd.allreduce([1.0]).tolist()


def die(rank, other="", status=None):
    """End one rank's process, or one above it, while the others wait for it."""
    import gorun.numpy as hvd

    hvd.init()
    if hvd.rank() == rank and status is not None:
        sys.exit(status)
    if hvd.rank() == rank:
        os.kill(above(other) if other else os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return hvd.allreduce([1.0]).tolist()


def hold(_):
    """Hold a slot."""
    time.sleep(600)


def wait(folder):
    """Say that this rank has begun, and wait."""
    open(os.path.join(folder, os.environ["HOROVOD_RANK"]), "x").close()
    time.sleep(600)


def interrupt(marks):
    """Press Ctrl-C once all ranks have begun."""
    while not all(map(os.path.exists, marks)):
        time.sleep(0.1)
    for mark in marks:
        os.remove(mark)
    os.kill(os.getpid(), signal.SIGINT)


def greet(text, name):
    """Say something; return where this rank is, and a variable."""
    import gorun.numpy as hvd

    hvd.init()
    print(text)
    hvd.allreduce([1.0])
    return hvd.rank(), hvd.size(), os.environ[name]


def train(once):
    """Train until a world of another size follows one of the first size and is followed by one of it.

    Rank 1 of the first kills its executor, if the file once is not there.
    """
    import gorun.elastic
    import gorun.numpy as hvd

    hvd.init()
    state = gorun.elastic.ObjectState(step=0, sizes=[])

    @gorun.elastic.run
    def go(state):
        state.sizes.append(hvd.size())
        enough = state.step + 10
        while state.step < (enough if len(set(state.sizes)) > 1 and hvd.size() == state.sizes[0] else 3000):
            hvd.allreduce([1.0], op=hvd.Sum, name="step")
            time.sleep(0.05)
            state.step += 1
            if state.step % 5 == 0:
                state.commit()
            if state.step > 5 and hvd.rank() == 1 and not os.path.exists(once):
                open(once, "x").close()
                os.kill(above("CoarseGrainedExecutorBackend"), signal.SIGKILL)
        return hvd.rank(), state.sizes

    return go(state)


def above(name):
    """Return the process above this one that has the name in its command line."""
    pid = os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            if name in file.read():
                return pid
    raise LookupError(name)


class Own:
    """A class that executors cannot import."""

    def __init__(self, value):
        self.value = value


def executor():
    """Return a name for the executor, whose directory no other has."""
    return ["host" + os.path.basename(os.getcwd()), ""]


MARK = f"GORUN_TEST_OF_SPARK={os.getpid()}"


class SparkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ.update([MARK.split("=")])
        os.environ["PYSPARK_PYTHON"] = sys.executable
        small = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.ui.enabled": "false"}
        builder = SparkSession.builder.master("local-cluster[3,2,512]").config(map=small)
        cls.session = builder.getOrCreate()
        cls.session.sparkContext.setLogLevel("OFF")

    @classmethod
    def tearDownClass(cls):
        cls.session.stop()

    def setUp(self):
        self.addCleanup(self.nothing_left)
        hosts = mock.patch.object(member, "machine", executor)
        hosts.start()
        self.addCleanup(hosts.stop)

    def nothing_left(self):
        """Check that no process of gorun's is left."""
        until = time.monotonic() + 60
        while left(MARK):
            self.assertLess(time.monotonic(), until, left(MARK))
            time.sleep(0.1)

    def test_results_by_rank(self):
        run = functools.partial(horovod.spark.run, verbose=0, stdout=io.StringIO())
        self.assertEqual(run(place, (1,), num_proc=6), [(r, 6, 2, [21.0]) for r in range(6)])
        self.assertEqual(run(place, kwargs={"more": 0}), [(r, 6, 2, [15.0]) for r in range(6)], "all")

    def test_the_environment(self):
        def look():
            return os.environ["OF_MINE"], os.environ.get("GORUN_RANK")

        seen = horovod.spark.run(look, env={"OF_MINE": 1}, num_proc=2)
        self.assertEqual(seen, [("1", "0"), ("1", "1")])
        names = self.session.sparkContext.parallelize(range(2), 2).map(lambda _: sorted(os.environ)).collect()
        self.assertFalse({"OF_MINE", "GORUN_RANK", "MASTER_ADDR"} & set(names[0] + names[1]), "given back")

    def test_a_function_fails(self):
        said = "^run: rank 1 on host.*: KeyError: 'bad luck'; .*\nTraceback"
        with self.assertRaisesRegex(RuntimeError, said):
            horovod.spark.run(fail, (1,), num_proc=3)

    def test_a_result_of_a_class_of_this_script(self):
        found = horovod.spark.run(lambda: Own(1), num_proc=2)
        self.assertEqual([(type(own), own.value) for own in found], [(Own, 1)] * 2)

    def test_a_rank_is_lost(self):
        for how, said in {
            (1,): r"rank 1 on host\d was killed by signal 9 \(SIGKILL\)",
            (1, "CoarseGrainedExecutorBackend"): "host.*",
            (1, "", 3): r"rank 1 on host\d exited with status 3",
        }.items():
            with self.assertRaisesRegex(RuntimeError, f"^run: {said}"):
                horovod.spark.run(die, how, num_proc=3)

    def test_other_jobs_hold_the_slots(self):
        context = self.session.sparkContext
        held = context.parallelize(range(2), 2).map(hold)
        other = InheritableThread(target=lambda: self.assertRaises(Py4JJavaError, held.count))
        other.start()
        while not context.statusTracker().getActiveStageIds():
            time.sleep(0.1)
        began = time.monotonic()
        said = "^run: Spark has room for [0-4] tasks at a time, and the job begins with 6, after 3 s"
        with self.assertRaisesRegex(TimeoutError, said):
            horovod.spark.run(place, (0,), num_proc=6, start_timeout=3)
        self.assertLess(time.monotonic() - began, 15)
        found = horovod.spark.run(place, (0,), num_proc=4, start_timeout=60)
        self.assertEqual([rank for rank, *_ in found], list(range(4)), "the others are enough")
        context.cancelAllJobs()
        other.join(60)

    def test_ctrl_c(self):
        with tempfile.TemporaryDirectory() as folder:
            marks = [os.path.join(folder, str(rank)) for rank in range(3)]
            for run in horovod.spark.run, functools.partial(horovod.spark.run_elastic, stdout=io.StringIO()):
                threading.Thread(target=interrupt, args=(marks,)).start()
                with self.assertRaises(KeyboardInterrupt):
                    run(wait, (folder,), num_proc=3)
                self.nothing_left()
        found = horovod.spark.run(place, (0,), num_proc=6, start_timeout=60)
        self.assertEqual(len(found), 6, "all is free again")

    def test_no_room(self):
        with self.assertRaisesRegex(ValueError, "at least 1 process, not 0"):
            horovod.spark.run(place, (0,), num_proc=0)

    def test_without_gorun(self):
        no = {"GORUN": "/nonexistent", "PATH": "/usr/bin:/bin"}
        with mock.patch.object(member, "executor", functools.partial(nowhere, no)):
            said = "^run_elastic: .*No such file or directory: '/nonexistent'"
            with self.assertRaisesRegex(RuntimeError, said):
                horovod.spark.run_elastic(place, (0,), num_proc=2)

    def test_estimators(self):
        for name in "horovod.spark.torch", "horovod.spark.keras", "horovod.spark.common":
            with self.assertRaisesRegex(ImportError, "gorun has no estimators of Spark: horovod.spark.run"):
                importlib.import_module(name)

    def test_elastic(self):
        said = io.StringIO()
        found = horovod.spark.run_elastic(
            greet, ("hello",), {"name": "OF_MINE"}, num_proc=6, env={"OF_MINE": 1}, stdout=said
        )
        self.assertEqual(found, [(rank, 6, "1") for rank in range(6)])
        self.assertEqual(said.getvalue().count("hello"), 6)

    def test_elastic_loses_an_executor(self):
        with tempfile.TemporaryDirectory() as folder:
            once = os.path.join(folder, "killed")
            found = horovod.spark.run_elastic(train, (once,), num_proc=6, min_num_proc=2)
            self.assertTrue(os.path.exists(once))
        self.assertEqual([rank for rank, _ in found], list(range(6)))
        sizes = found[0][1]
        self.assertEqual((sizes[0], sizes[-1]), (6, 6), "it took the new executor in")
        self.assertLess(min(sizes), 6, "it went on without the lost one")

    def test_an_elastic_function_fails(self):
        said = "^run_elastic: rank 2 on .*: KeyError: 'bad luck'; .*\nTraceback"
        with self.assertRaisesRegex(RuntimeError, said):
            horovod.spark.run_elastic(fail, (2,), num_proc=3)

    def test_elastic_no_room(self):
        said = "^run_elastic: Spark has room for . tasks at a time, and the job begins with 40, after 1 s"
        with self.assertRaisesRegex(TimeoutError, said):
            horovod.spark.run_elastic(place, (0,), num_proc=50, min_num_proc=40, start_timeout=1)

    def test_no_context(self):
        with mock.patch.object(runner.SparkContext, "_active_spark_context", None):
            with self.assertRaisesRegex(RuntimeError, "^run: there is no SparkContext"):
                horovod.spark.run(place, (0,))


def listens(port):
    """Report whether something listens at a port of this machine."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


class StandaloneTest(unittest.TestCase):
    """A master and two workers of Spark's own, which are processes of this machine."""

    def setUp(self):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.master = f"spark://127.0.0.1:{self.port}"
        self.spark("master.Master", "--port", self.port, "--webui-port", "0")
        until = time.monotonic() + 120
        while not listens(int(self.port)):
            self.assertLess(time.monotonic(), until, "the master does not start")
            time.sleep(0.2)
        for number in "12":
            work = os.path.join(self.folder, number)
            self.spark("worker.Worker", "--webui-port", "0", "-c", "2", "-m", "1g", "-d", work, self.master)

    def spark(self, program, *arguments):
        """Start a program of Spark's until the end of the test."""
        command = [
            os.path.join(pyspark.__path__[0], "bin", "spark-class"),
            f"org.apache.spark.deploy.{program}",
        ]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            process = subprocess.Popen([*command, "--host", "127.0.0.1", *arguments], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)

    def session(self, dynamic):
        """Start an application with two executors."""
        settings = {
            "spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.executor.cores": "2",
            "spark.dynamicAllocation.enabled": dynamic, "spark.dynamicAllocation.maxExecutors": "2",
            "spark.dynamicAllocation.shuffleTracking.enabled": dynamic,
        }  # fmt: skip
        session = SparkSession.builder.master(self.master).config(map=settings).getOrCreate()
        self.addCleanup(session.stop)
        session.sparkContext.setLogLevel("OFF")

    def test_two_workers(self):
        self.session("false")
        run = functools.partial(horovod.spark.run, place, (1,), num_proc=4, start_timeout=120)
        self.assertEqual(run(), [(rank, 4, 4, [10.0]) for rank in range(4)])
        elastic = horovod.spark.run_elastic(place, (1,), num_proc=4, start_timeout=120, stdout=io.StringIO())
        self.assertEqual(
            [(rank, size, total) for rank, size, _, total in elastic], [(r, 4, [10.0]) for r in range(4)]
        )

    def test_dynamic_allocation(self):
        self.session("true")
        for run in horovod.spark.run, horovod.spark.run_elastic:
            found = run(place, (1,), num_proc=4, start_timeout=120, stdout=io.StringIO())
            self.assertEqual([size for _, size, *_ in found], [4] * 4)


def nowhere(environ):
    """Return an executor, in which gorun cannot be found from now on."""
    os.environ.update(environ)
    return member.executor()


if __name__ == "__main__":
    unittest.main()
