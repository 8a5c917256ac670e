"""Jobs in a Ray cluster of three nodes on this machine: make ray.

PYTHONPATH has a gorun, and GORUN names its binary. Ray starts once, for all tests.
"""

import contextlib
import functools
import importlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from unittest import mock

import ray
from horovod.ray import ElasticRayExecutor, RayExecutor, ray_logger, runner
from horovod.ray.elastic import RayHostDiscovery, TestDiscovery
from horovod.ray.elastic_v2 import ElasticParams
from leftovers import left
from ray.cluster_utils import Cluster
from ray.exceptions import RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group

from gorun.exceptions import HorovodInternalError
from gorun.ray import adapter, static

OBJECT_STORE = 80 << 20  # bytes, the least that Ray takes


def place(more):
    """Return where this rank is, and a sum over all."""
    import gorun.numpy as hvd

    hvd.init()
    print("said by", hvd.rank())
    total = hvd.allreduce([float(hvd.rank() + more)], op=hvd.Sum).tolist()
    return hvd.rank(), hvd.size(), hvd.local_rank(), total


def fail(rank):
    """Fail on one rank, while the others wait for it."""
    import gorun.numpy as hvd

    hvd.init()
    if hvd.rank() == rank:
        raise KeyError("bad luck")
    return hvd.allreduce([1.0]).tolist()


def die(rank):
    """End one rank's process, while the others wait for it."""
    import gorun.numpy as hvd

    hvd.init()
    if hvd.rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return hvd.allreduce([1.0]).tolist()


def train(steps, pause=0.05, first=0, last=0, most=3000):
    """Count in an elastic job; return the steps, and the sizes of the worlds that did them.

    A world counts so many steps. There are more of them, up to most, until one had the size first, if that
    is not 0, and a later one has the size last.
    """
    import gorun.elastic
    import gorun.numpy as hvd

    hvd.init()
    state = gorun.elastic.ObjectState(step=0, sizes=[])

    @gorun.elastic.run
    def go(state):
        state.sizes.append(hvd.size())
        enough = state.step + steps
        wanted = not first or first in state.sizes and hvd.size() == last
        while state.step < (enough if wanted else most):
            hvd.allreduce([1.0], op=hvd.Sum, name="step")
            time.sleep(pause)
            state.step += 1
            if state.step % 5 == 0:
                ray_logger.log({"step": state.step, "size": hvd.size()})
                state.commit()
        return state.step, state.sizes

    return go(state)


def slow():
    """Return something that takes its time to become bytes."""
    return Slow(os.environ["HOROVOD_RANK"])


class Slow:
    """Becomes a text on the way."""

    def __init__(self, text):
        self.text = text

    def __reduce__(self):
        time.sleep(2)
        return str, (self.text,)


def lose():
    """Report after the queue of reports was lost; return the warnings."""
    import gorun.numpy as hvd
    import gorun.ray.ray_logger

    hvd.init()
    if hvd.rank() == 0:
        ray.kill(gorun.ray.ray_logger._queue.actor)
    hvd.allreduce([1.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            ray_logger.log({"rank": hvd.rank()}, chief_only=False)
    return [str(warning.message).splitlines()[0] for warning in caught]


def sleep(begun, seconds):
    """Say that it has begun, and sleep."""
    open(f"{begun}.{os.environ['HOROVOD_RANK']}", "x").close()
    time.sleep(seconds)


def leave(status):
    """End one rank's process with a status, while the others wait for it."""
    import gorun.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        sys.exit(status)
    return hvd.allreduce([1.0]).tolist()


def report(chief_only):
    """Report the rank."""
    import gorun.numpy as hvd

    hvd.init()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            ray_logger.log({"rank": hvd.rank()}, chief_only=chief_only)
    hvd.allreduce([1.0])
    return [str(warning.message) for warning in caught]


class Broken:
    """An executable that cannot be made."""

    def __init__(self):
        raise KeyError("no such model")


class Counter:
    """An executable, which keeps its state between calls."""

    def __init__(self, start, step=1):
        self.value, self.step = start, step

    def count(self):
        """Count."""
        self.value += self.step
        return self.value


def settings(**more):
    """Return settings for a machine that has other things to do."""
    return RayExecutor.create_settings(timeout_s=60, **more)


def interrupt(begun, ranks, process=None):
    """Press Ctrl-C once all ranks have begun."""
    while not all(os.path.exists(f"{begun}.{rank}") for rank in range(ranks)):
        if process is not None and process.poll() is not None:
            return
        time.sleep(0.1)
    os.kill(process.pid if process else os.getpid(), signal.SIGINT)


def unclaimed():
    """Return a port that is free now, and that neither Linux nor Ray (10002 to 19999) gives to others."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as limits:
        first = int(limits.read().split()[0])
    for port in random.sample(range(20000, first), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")


MARK = f"GORUN_TEST_OF_RAY={os.getpid()}"


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ.update([MARK.split("=")])
        cls.cluster = Cluster()
        for _ in range(3):
            cls.cluster.add_node(num_cpus=2, num_gpus=2, object_store_memory=OBJECT_STORE,
                                 include_dashboard=False)  # fmt: skip
        ray.init(address=cls.cluster.address, log_to_driver=False)

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()
        cls.cluster.shutdown()

    def setUp(self):
        self.addCleanup(self.nothing_left)

    def nothing_left(self):
        """Check that no process of gorun's is left, and that Ray has all of its CPUs again."""
        until = time.monotonic() + 60
        while left(MARK) or ray.available_resources().get("CPU") != 6:
            self.assertLess(time.monotonic(), until, f"{left(MARK)} {ray.available_resources()}")
            time.sleep(0.1)

    def executor(self, *args, start=True, **kwargs):
        executor = RayExecutor(*args, **kwargs)
        self.addCleanup(executor.shutdown)
        if start:
            executor.start()
        return executor

    def test_results_by_rank(self):
        executor = self.executor(settings(), num_workers=5)
        self.assertEqual(executor.run(place, [1]), [(r, 5, r % 2, [15.0]) for r in range(5)])
        again = executor.run(place, kwargs={"more": 2})
        self.assertEqual([total for *_, total in again], [[20.0]] * 5, "the workers stay")
        self.assertEqual(ray.get(executor.run_remote(place, [0]))[4], (4, 5, 0, [10.0]))

    def test_hosts(self):
        executor = self.executor(settings(), num_hosts=3, num_workers_per_host=2)
        self.assertEqual(executor.run(place, [0]), [(r, 6, r % 2, [15.0]) for r in range(6)])

    def test_executables(self):
        executor = self.executor(settings(), num_workers=3, start=False)
        executor.start(Counter, [10], {"step": 2}, {"OF_MINE": 1})
        self.assertEqual(executor.execute(lambda counter: counter.count()), [12] * 3)
        self.assertEqual(executor.execute_single(lambda counter: counter.count()), 14)
        self.assertEqual(executor.execute(lambda counter: counter.value), [14, 12, 12])
        self.assertEqual(executor.run(lambda: os.environ["OF_MINE"]), ["1"] * 3)

    def test_gpus(self):
        executor = self.executor(settings(), num_hosts=2, num_workers_per_host=2, use_gpu=True)
        seen = executor.run(lambda: sorted(os.environ["CUDA_VISIBLE_DEVICES"]))
        self.assertEqual(seen, [[",", "0", "1"]] * 4)

    def test_gpus_of_an_elastic_job(self):
        executor = self.executor(settings(), min_workers=6, use_gpu=True)
        self.assertEqual(executor.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]), ["0,1"] * 6)

    def test_callbacks(self):
        executor, seen = self.executor(settings(), num_workers=2), []
        self.assertEqual(executor.run(report, [True], callbacks=[seen.append]), [[], []])
        self.assertEqual(seen, [{"rank": 0}] * 2)
        executor.run(report, [False], callbacks=[seen.append])
        self.assertEqual(sorted(item["rank"] for item in seen), [0, 0, 0, 0, 1, 1])
        self.assertEqual(executor.run(report, [True]), [["log: run() was given no callbacks"], []])

    def test_reports_are_kept_here(self):
        here = ray.get_runtime_context().get_node_id()
        for _ in range(4):
            with adapter.reports([print]) as (queue, deliver):
                queue.put(1)
                there = ray._private.state.actors(queue.actor._actor_id.hex())
                self.assertEqual(there["Address"]["NodeID"], here)
                deliver()

    def test_reports_are_lost(self):
        for size in {"num_workers": 2}, {"min_workers": 2, "max_workers": 2}:
            executor = self.executor(settings(), **size)
            for warned in executor.run(lose, callbacks=[lambda _: None]):
                self.assertEqual(len(warned), 1)
                self.assertRegex(warned[0], "^log: a report is lost: ")
            executor.shutdown()

    def test_ctrl_c(self):
        executor = self.executor(settings(), num_workers=2)
        with tempfile.TemporaryDirectory() as folder:
            for number, callbacks in enumerate(([], [print])):
                begun = os.path.join(folder, str(number))
                threading.Thread(target=interrupt, args=(begun, 2)).start()
                with self.assertRaises(KeyboardInterrupt):
                    executor.run(sleep, [begun, 60], callbacks=callbacks)
                with self.assertRaisesRegex(RuntimeError, "^run: there are no workers: .*start"):
                    executor.run(place, [0])
                self.ends_at_once(executor)
                executor.start()
            self.assertEqual([total for *_, total in executor.run(place, [1])], [[3.0]] * 2)
            executor.run_remote(sleep, [os.path.join(folder, "left"), 60])
            self.ends_at_once(executor)

    def ends_at_once(self, executor):
        """Check that shutdown() does not wait for what runs."""
        began = time.monotonic()
        executor.shutdown()
        self.assertLess(time.monotonic() - began, 9)

    def test_start_twice(self):
        executor = self.executor(settings(), num_workers=1)
        with self.assertRaisesRegex(RuntimeError, r"^start: the workers run already \(hint: shutdown"):
            executor.start()
        self.assertEqual(executor.run(place, [0]), [(0, 1, 0, [0.0])])
        executor.shutdown()
        with self.assertRaisesRegex(KeyError, "no such model"):
            executor.start(Broken)
        executor.start()
        self.assertEqual(executor.run(place, [0]), [(0, 1, 0, [0.0])])

    def test_a_function_fails(self):
        executor = self.executor(settings(), num_workers=4)
        with self.assertRaises(KeyError) as caught:
            executor.run(fail, [2])
        self.assertIsInstance(caught.exception, RayTaskError)
        self.assertIn("repr=rank 2", str(caught.exception))
        self.assertIn("bad luck", str(caught.exception))
        if sys.version_info >= (3, 11):
            self.assertRegex(caught.exception.__notes__[0], "^rank 2 on .* raised this$")
        self.assertEqual([total for *_, total in executor.run(place, [1])], [[10.0]] * 4, "the workers go on")
        with self.assertRaises(KeyError):
            executor.execute_single(lambda _: fail(0))
        self.assertEqual([total for *_, total in executor.run(place, [1])], [[10.0]] * 4, "a new world")

    def test_a_worker_is_killed(self):
        executor = self.executor(settings(), num_workers=4)
        said = "^rank 1 on .*: its actor died: .*; the job has ended: rank 1 on .*"
        with self.assertRaisesRegex(RuntimeError, said + "exited with status 1"):
            executor.run(die, [1])
        executor.shutdown()
        executor.start()
        with self.assertRaisesRegex(RuntimeError, said + "exited with status 3"):
            executor.run(leave, [3])
        executor.shutdown()
        elastic = self.executor(settings(), min_workers=6)
        with self.assertRaisesRegex(RuntimeError, "^run: .*exited with status 3"):
            elastic.run(leave, [3])

    def test_no_host_can_start(self):
        executor = self.executor(settings(nics={"nonexist"}), num_workers=4, start=False)
        with self.assertRaisesRegex(RuntimeError, "^start: 2 of 2 hosts failed; .*none of nonexist is up"):
            executor.start()

    def test_parts_of_ray_train(self):
        said = r"^horovod.ray.*gorun has no .*RayExecutor\(settings"
        with self.assertRaisesRegex(ImportError, said):
            self.fail(runner.Coordinator)  # what ray.train.horovod imports first
        for name in "utils", "strategy":
            with self.assertRaisesRegex(ImportError, said):
                importlib.import_module(f"horovod.ray.{name}")
        self.assertEqual(runner.MiniSettings(timeout_s=7).start_timeout, 7)
        self.assertTrue(ElasticParams().elastic and issubclass(TestDiscovery, RayHostDiscovery))

    def test_hosts_by_chance(self):
        given = settings()
        given.discovery = TestDiscovery(1, 2, 0.0, verbose=False)
        sizes = {len(given.discovery.find_available_hosts_and_slots()) for _ in range(40)}
        self.assertEqual(sizes, {1, 2})
        given.discovery = TestDiscovery(3, 9, 1.0)
        executor = self.executor(given, min_workers=6, override_discovery=False)
        self.assertEqual(len(executor.run(place, [0])), 6)

    def test_a_node_is_gone_before_ray_says_so(self):
        adapter = static.StaticAdapter(settings(), static.StaticParams(num_workers=1))
        adapter._workers = [static._Worker(None, "id", "one")]
        adapter._job = mock.Mock(**{"wait.return_value": 1, "failure.return_value": "two did not answer"})
        raised = adapter._named(0, HorovodInternalError("two left"))
        self.assertIsInstance(raised, RuntimeError)
        self.assertEqual((str(raised), str(raised.__cause__)), ("run: two did not answer", "two left"))
        adapter._job.wait.return_value = None
        self.assertIsInstance(adapter._named(0, HorovodInternalError("two left")), HorovodInternalError)

    def test_no_room(self):
        executor = self.executor(settings(placement_group_timeout_s=1), num_workers=50, start=False)
        said = "no room for 50 workers with 1 CPU each within 1 s: its 3 nodes"
        with self.assertRaisesRegex(TimeoutError, said):
            executor.start()

    def test_a_group_that_is_there(self):
        group = placement_group([{"CPU": 1}] * 3, strategy="SPREAD")
        self.addCleanup(remove_placement_group, group)

        @ray.remote(num_cpus=1)
        def drive():
            executor = RayExecutor(settings(), num_workers=2)
            executor.start()
            result = executor.run(place, [0])
            executor.shutdown()
            return result

        where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
        )
        ray.get(group.ready())
        result = ray.get(drive.options(scheduling_strategy=where).remote(), timeout=120)
        self.assertEqual([(r, size, total) for r, size, _, total in result], [(0, 2, [1.0]), (1, 2, [1.0])])

    def test_nodes_come_and_go(self):
        """The job gets the nodes that there are, loses one, and goes on."""
        more = self.cluster.add_node(num_cpus=2, object_store_memory=OBJECT_STORE)
        changes = {8: lambda: self.cluster.remove_node(more)}
        seen = []

        def follow(report):
            seen.append(report["size"])
            change = changes.pop(report["size"], None)
            if change:
                threading.Thread(target=change).start()

        settings = ElasticRayExecutor.create_settings(min_num_proc=2, timeout_s=60)
        executor = ElasticRayExecutor(settings, env_vars={"OF_MINE": "1"})
        executor.start()
        results = executor.run(functools.partial(train, 20, first=8, last=6), callbacks=[follow])
        self.assertEqual(len(results), 6)
        self.assertEqual(len({steps for steps, _ in results}), 1)
        sizes = results[0][1]
        self.assertEqual((max(sizes), sizes[-1]), (8, 6), "a node was lost")
        self.assertIn(8, seen)
        self.assertEqual(seen[-1], 6, "rank 0 of the last world reports")

    def test_elastic_by_ray_executor(self):
        executor = self.executor(settings(), min_workers=2, max_workers=3)
        results = executor.run(train, [20, 0.0], callbacks=[lambda _: None])
        self.assertEqual(len({steps for steps, _ in results}), 1)
        self.assertGreaterEqual(results[0][0], 20)
        self.assertLessEqual(max(results[0][1]), 3)
        with self.assertRaisesRegex(NotImplementedError, "use run"):
            executor.run_remote(train)

    def test_elastic_results_travel_slowly(self):
        executor = self.executor(settings(), min_workers=3, max_workers=3)
        self.assertEqual(executor.run(slow), ["0", "1", "2"])

    def test_an_elastic_executable_fails(self):
        executor = self.executor(settings(), min_workers=2, start=False)
        executor.start(Broken)
        with self.assertRaisesRegex(KeyError, "no such model"):
            executor.run(train, [1])

    def test_an_elastic_function_fails(self):
        executor = self.executor(settings(), min_workers=6)
        with self.assertRaisesRegex(RuntimeError, "^run: .*KeyError: 'bad luck'"):
            executor.run(fail, [2])

    def test_an_elastic_job_without_room(self):
        executor = self.executor(settings(), min_workers=50, elastic_timeout=2)
        said = "Ray has room for . workers, and the job begins with 50, after 2 s"
        with self.assertRaisesRegex(TimeoutError, said):
            executor.run(train, [1])

    def test_wrong_arguments(self):
        for words, given in (
            ("num_workers, or num_hosts", {}),
            ("num_workers, or num_hosts", {"num_workers": 1, "num_hosts": 1}),
            ("min_workers makes the job elastic", {"num_workers": 1, "min_workers": 1}),
            ("max_workers needs a positive min_workers", {"max_workers": 1}),
            ("gpus_per_worker is set", {"num_workers": 1, "gpus_per_worker": 1}),
            ("must be >= 1", {"num_workers": 1, "gpus_per_worker": -1, "use_gpu": True}),
            ("at least 1 worker, not 0", {"num_workers": 0}),
        ):
            with self.assertRaisesRegex(ValueError, words):
                RayExecutor(settings(), **given)
        with self.assertRaisesRegex(RuntimeError, "start.. comes first"):
            RayExecutor(settings(), num_workers=1).run(place)


class ClientTest(unittest.TestCase):
    def test_ray_client(self):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_client.py")
        # gRPC's handlers of forks end one in ten of the servers that Ray forks for a client: ray issue 63202.
        variables = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120", "GRPC_ENABLE_FORK_SUPPORT": "false"}
        patience = mock.patch.dict(os.environ, variables)
        patience.start()
        self.addCleanup(patience.stop)
        cluster = Cluster()
        self.addCleanup(cluster.shutdown)
        port = unclaimed()
        for client in {"ray_client_server_port": port, "include_dashboard": False}, {}:
            cluster.add_node(num_cpus=2, object_store_memory=OBJECT_STORE, **client)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", program, f"ray://127.0.0.1:{port}", folder]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            with subprocess.Popen(command, text=True, **pipes) as process:
                self.addCleanup(process.kill)
                interrupt(os.path.join(folder, "mark"), 4, process)
                output, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, errors)
        said = output.splitlines()
        self.assertEqual(said[0], f"static {[(rank, 4, [10.0]) for rank in range(4)]}")
        self.assertRegex(said[1], r"^fails RayTaskError\(KeyError\): True: ")
        self.assertEqual(said[2:4], ["interrupted KeyboardInterrupt", "at once True"])
        self.assertEqual(said[4], "elastic [(0, 2, [3.0]), (1, 2, [3.0])]")


if __name__ == "__main__":
    unittest.main()
