"""Processes that a rank starts run on the CPUs that the daemon names."""

import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """
import multiprocessing, os, sys
from gorun import basics

def where(out):
    out.send(sorted(os.sched_getaffinity(0)))

if __name__ == "__main__":
    for method in "fork", "spawn":
        context = multiprocessing.get_context(method)
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=where, args=(sender,))
        child.start()
        print(method, *receiver.recv())
        child.join()
    print("self", *sorted(os.sched_getaffinity(0)))
"""


@unittest.skipUnless(hasattr(os, "sched_getaffinity"), "this system has no CPU affinity")
class SpareTest(unittest.TestCase):
    def places(self, spare):
        """Return where a program runs, and what it forks and spawns."""
        file = os.path.join(self.directory, "program.py")
        env = {**os.environ, "GORUN_SPARE_CPUS": spare, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, file]
        out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(out.returncode, 0, out.stderr)
        lines = [line.split() for line in out.stdout.splitlines()]
        return {name: [int(cpu) for cpu in cpus] for name, *cpus in lines}

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        with open(os.path.join(self.directory, "program.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)

    def test_children_move_and_the_rank_stays(self):
        own = sorted(os.sched_getaffinity(0))
        last = own[-1]
        self.assertEqual(self.places(str(last)), {"fork": [last], "spawn": [last], "self": own})

    def test_nothing_moves_without_a_place(self):
        own = sorted(os.sched_getaffinity(0))
        for spare in ("", "x", "4095"):  # none, nonsense, CPUs that are not there
            self.assertEqual(self.places(spare), {"fork": own, "spawn": own, "self": own}, spare)
