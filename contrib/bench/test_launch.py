"""Tests of what the comparison of launches computes."""

import math
import unittest

import launch


class Test(unittest.TestCase):
    def test_table(self) -> None:
        times = {
            2: {launch.GORUN: [0.1, 0.3, 0.2], launch.SSH: [0.15, 0.05, 0.1]},
            64: {launch.GORUN: [1.0, math.inf, 3.0], launch.SSH: [math.inf, math.inf, math.inf]},
        }
        self.assertEqual(
            launch.table(times),
            [
                "| ranks | gorun | plain ssh |",
                "|---:|---:|---:|",
                "| 2 | 200 (100–300) | 100 (50–150) |",
                "| 64 | 2000 (1000–3000), 1 of 3 failed | failed |",
            ],
        )

    def test_verdicts(self) -> None:
        def judged(**seconds: float) -> list[bool]:
            names = {"gorun": launch.GORUN, "cold": launch.COLD, "cluster": launch.CLUSTER, "ssh": launch.SSH}
            names |= {"ompi": launch.OPEN_MPI, "mpich": launch.MPICH}
            return [holds for holds, _ in launch.verdicts({64: {names[n]: [s] for n, s in seconds.items()}})]

        self.assertEqual(judged(gorun=1.1, ssh=1, mpich=2), [True, True])
        self.assertEqual(judged(gorun=1.5, ssh=1, mpich=2), [True, False])  # its share is too large
        self.assertEqual(judged(gorun=2.1, ssh=1, mpich=2), [False, False])
        self.assertEqual(judged(gorun=0.9, ssh=1, mpich=0.8, ompi=2), [False, True, True])
        self.assertEqual(judged(cold=2.1, ssh=3, mpich=2, ompi=math.inf), [False, True])
        self.assertEqual(judged(cluster=0.2, mpich=2), [True])
        self.assertEqual(judged(cluster=0.21, mpich=2), [False])
        self.assertEqual(judged(gorun=1, ssh=1), [])  # no peer to compare with


if __name__ == "__main__":
    unittest.main()
