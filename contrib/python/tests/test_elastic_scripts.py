"""The elastic programs that the fault tests run, and the example: alone, and in jobs on this host."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(script, *arguments):
    """Run a script as a user without gorun does."""
    path = os.pathsep.join(str(ROOT / "contrib/python" / part) for part in ("", "shim"))
    environ = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-B", str(ROOT / script), *arguments]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    if ended.returncode and "No module named" in ended.stderr:
        raise unittest.SkipTest(ended.stderr.splitlines()[-1])
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def launch(*arguments):
    """Run steps.py in an elastic job on this host, and return how its ranks ended, and the epochs' sizes."""
    gorun = ROOT / "bin/gorun"
    if not gorun.exists():
        raise unittest.SkipTest("make build")
    run("testdata/elastic/steps.py", "--steps", "1")  # or skip
    command = [gorun, "--min-np", "1", *arguments, "--steps", "60"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pattern = r"done rank (\d+) of (\d+): steps 60 epoch (\d+) worlds (\d+) weights (\w+)"
    done = re.findall(pattern, ended.stdout)
    return sorted(tuple(int(n) for n in line[:4]) for line in done), {line[4] for line in done}


STEPS = (sys.executable, "-B", str(ROOT / "testdata/elastic/steps.py"))


class JobTest(unittest.TestCase):
    """Whatever happens, the weights at the end are what they must be; the program checks that itself."""

    def test_undisturbed(self):
        done, weights = launch("-H", "localhost:3", *STEPS)
        self.assertEqual(done, [(rank, 3, 1, 1) for rank in range(3)])
        self.assertEqual(len(weights), 1)

    def test_who_was_told_in_backward_can_exit(self):
        run("testdata/elastic/backward.py", "alone")  # or skip
        for how, told in ("death", ["backward"]), ("passes", ["backward"] * 2):
            command = [ROOT / "bin/gorun", "--min-np", "1", "-H", "localhost:2", sys.executable, "-B"]
            command += [ROOT / "testdata/elastic/backward.py", how]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(re.findall("told in ([a-z]+)", ended.stdout), told)

    def test_a_rank_dies(self):
        for victim in "0", "2":
            done, _ = launch("-H", "localhost:3", *STEPS, "--kill", f"{victim}@25")
            self.assertEqual(done, [(rank, 2, 2, 2) for rank in range(2)])

    def test_a_schedule_goes_on(self):
        """A scheduler goes back to the last commit with its optimizer, and reaches a new process."""
        run("testdata/elastic/schedule.py")  # or skip
        cooldown = "--blacklist-cooldown-range", "0.01", "0.02"
        program = sys.executable, "-B", ROOT / "testdata/elastic/schedule.py"
        for how in ("--min-np", "1", "-H", "localhost:3"), ("--min-np", "2", "-H", "localhost:2", *cooldown):
            with self.subTest(how):
                command = [ROOT / "bin/gorun", *how, *program]
                ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                done = sorted(re.findall("done rank (.*)", ended.stdout))
                self.assertEqual(done, [f"{rank} of 2: rate {0.5**8} same True" for rank in range(2)])

    def test_a_rank_dies_and_is_replaced(self):
        cooldown = "--blacklist-cooldown-range", "0.01", "0.02"
        done, _ = launch("-H", "localhost:2", *cooldown, *STEPS, "--kill", "0@5", "--pause", "0.05")
        self.assertEqual([line[:2] for line in done], [(0, 2), (1, 2)])
        self.assertEqual(len({line[3] for line in done}), 2, "one has seen fewer worlds than the other")

    def test_process_sets_stay(self):
        """Those that were added before a rank died are there after it, also for the one in its place."""
        cooldown = "--blacklist-cooldown-range", "0.01", "0.02"
        job = *STEPS, "--sets", "--kill", "1@5", "--pause", "0.05"
        done, _ = launch("-H", "localhost:3", *cooldown, *job)
        self.assertEqual([line[:2] for line in done], [(rank, 3) for rank in range(3)])
        self.assertEqual(len({line[3] for line in done}), 2, "one has seen fewer worlds than the others")

    def test_ddp_in_another_world(self):
        """DDP gets a process group of the ranks that are left, and the state of the interrupted step."""
        run("testdata/elastic/ddp.py", "alone")  # or skip
        ends = {}
        for how in ("-np", "1"), ("--min-np", "1", "-H", "localhost:3"):
            command = [ROOT / "bin/gorun", *how, sys.executable, "-B", ROOT / "testdata/elastic/ddp.py"]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            pattern = r"done rank (\d) of (\d): began at \[(.*)\] weights (\w+)"
            ends[how[0]] = sorted(re.findall(pattern, ended.stdout))
            self.assertNotIn("the world ended", ended.stderr, "the launcher says it")
        alone = ends["-np"][0][3]
        self.assertEqual(ends["--min-np"], [(str(rank), "2", "0, 17", alone) for rank in range(2)])

    def test_the_batch_is_kept(self):
        """One of three ranks makes the same steps as all of them would, until the others are back."""
        script = "testdata/elastic/keep.py"
        run(script)  # or skip
        ends = []
        for more in [], ["--kill", "7"]:
            how = "--min-np", "1", "-np", "3", "--on-loss", "keep-batch", "-H", "localhost:3"
            how += "--on-failure", "shrink", "--blacklist-cooldown-range", "0.01", "0.02"
            how += "--no-tag-output", sys.executable, "-B"
            command = [ROOT / "bin/gorun", *how, ROOT / script, *more]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            ends.append(ended.stdout.split())
        self.assertEqual(ends[0], ends[1])
        self.assertRegex(ended.stderr, r"epoch \d: 1 rank")
        self.assertRegex(ended.stderr, r"epoch \d: 3 ranks")

    def test_a_rank_fails(self):
        done, _ = launch("-H", "localhost:3", *STEPS, "--fail", "1@33")
        self.assertEqual(done, [(rank, 3, 2, 2) for rank in range(3)])

    def test_news_of_hosts_is_pushed(self):
        """A script that waits for on_hosts_updated() makes no call meanwhile that could fetch the news."""
        gorun = ROOT / "bin/gorun"
        if not gorun.exists():
            raise unittest.SkipTest("make build")
        with tempfile.TemporaryDirectory() as folder:
            hosts = Path(folder, "hosts")
            hosts.write_text("localhost:1")
            command = [gorun, "--min-np", "1", "--host-discovery-script", f"cat {hosts}"]
            command += [sys.executable, "-B", ROOT / "testdata/elastic/news.py", hosts]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        told = re.findall(r"world (\d) of (\d): (\w+)", ended.stdout)
        self.assertEqual(sorted(told), [("0", "1", "added"), *[("1", "2", "removed")] * 2])
        self.assertIn("done rank 0 of 1", ended.stdout)

    def test_a_mistake_is_shown(self):
        """Ranks that differ end the job with what the difference is, instead of world after world."""
        run("testdata/elastic/steps.py", "--steps", "1")  # or skip
        command = [ROOT / "bin/gorun", "--min-np", "1", "-H", "localhost:2", *STEPS, "--differ", "1@15"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        for rank in 0, 1:
            self.assertRegex(ended.stderr, rf"\[{rank}\]<stderr>:.*HorovodInternalError: .*part.*1000.*999")
        self.assertLess(ended.stderr.count("epoch "), 3, ended.stderr)

    def test_nothing_is_left_of_worlds_that_failed(self):
        """Nor of an operation that was refused; and without the garbage collector."""
        for worlds, how in (20, []), (8, ["--torch"]):
            with self.subTest(how):
                run("testdata/elastic/lose.py", "--worlds", "1", *how)  # or skip
                command = [ROOT / "bin/gorun", "--min-np", "1", "-H", "localhost:2", sys.executable, "-B"]
                command += [ROOT / "testdata/elastic/lose.py", "--worlds", str(worlds), *how]
                ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                for rank in "01":
                    found = re.findall(rf"\[{rank}\]<stdout>:world (\d+): (.*)", ended.stdout)
                    self.assertEqual([int(world) for world, _ in found], list(range(1, worlds + 1)))
                    self.assertRegex(found[0][1], r"^[1-9]\d* mappings, \d+ descriptors, still there: -$")
                    self.assertEqual({left for _, left in found}, {found[0][1]})


class ScriptTest(unittest.TestCase):
    def test_steps(self):
        ended = run("testdata/elastic/steps.py", "--steps", "25")
        self.assertEqual(re.findall(r"commit (\d+) epoch 1 size 1", ended), ["10", "20"])
        self.assertIn("done rank 0 of 1: steps 25 epoch 1 worlds 1 weights ", ended)
        failed = run("testdata/elastic/steps.py", "--steps", "25", "--fail", "0@15")
        self.assertIn("steps 25 epoch 1 worlds 2", failed)
        self.assertEqual(failed.split()[-1], ended.split()[-1], "the weights depend on the failure")

    def test_digits(self):
        ended = run("testdata/elastic/digits.py", "--epochs", "4", "--target", "90")
        self.assertRegex(ended, r"done rank 0 of 1: pid \d+ batches 360 ")

    def test_example(self):
        ended = run("contrib/examples/synthetic_elastic_torch.py", "--num-batches", "20")
        self.assertEqual(len(re.findall(r"samples/sec on 1 rank", ended)), 3)
