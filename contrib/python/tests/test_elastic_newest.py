"""The newest copy that anybody has is what all go on from."""

import random
import unittest
from unittest import mock

import tests_path  # noqa: F401
from fake import run_ranks

from gorun import basics
from gorun.elastic import ObjectState
from gorun.objects import broadcast_object


class Process:
    """One process of a job, as far as it outlives worlds."""

    def __init__(self):
        self.state = ObjectState(broadcast_object, basics.rank, step=0, history=[])


def commit(state, what):
    """Take a step, and keep it."""
    state.step += 1
    state.history.append(what)
    state.save()


class NewestTest(unittest.TestCase):
    def test_survivors_go_on_from_the_newest_commit(self):
        """Worlds end when only some ranks have committed, or amid sync(); ranks die and come."""
        uneven = 0
        for seed in range(150):
            rng = random.Random(seed)
            processes = [Process() for _ in range(rng.randint(1, 4))]
            for world in range(6):
                kept = {tuple(p.state.history) for p in processes}
                want = max(kept, key=len)
                halfway = {p for p in processes if rng.random() < 0.2} if world else set()

                def body(rank, processes=processes, halfway=halfway, want=want, seed=seed):
                    state = processes[rank].state
                    if processes[rank] in halfway:  # fails when it has heard everything and kept nothing
                        with mock.patch.object(state, "save", side_effect=KeyError):
                            with self.assertRaises(KeyError):
                                state.sync()
                        state.restore()
                        return
                    state.sync()
                    self.assertEqual((state.step, tuple(state.history)), (len(want), want), f"seed {seed}")

                run_ranks(len(processes), body)
                if not halfway:
                    self.assertEqual({tuple(p.state.history) for p in processes}, {want}, f"seed {seed}")
                    for step in range(rng.randint(0, 3)):
                        for process in processes:
                            commit(process.state, (world, step))
                    told = {p for p in processes if rng.random() < 0.5}  # who got the result of the last step
                    uneven += 0 < len(told) < len(processes)
                    for process in told:
                        commit(process.state, (world, "last"))
                alive = [p for p in processes if rng.random() < 0.7] or [rng.choice(processes)]
                for process in alive:  # lost: what was not kept
                    process.state.step = -1
                    process.state.restore()
                processes = alive + [Process() for _ in range(rng.randint(0, 2))]
        self.assertGreater(uneven, 100)

    def test_root_is_the_first_of_the_newest(self):
        """A broadcast of the user's own that knows no root is asked for none as long as rank 0 will do."""

        def body(rank):
            state = ObjectState(lambda obj: broadcast_object(obj), basics.rank, step=rank)
            state.sync()
            self.assertEqual(state.step, 0)
            state = ObjectState(broadcast_object, basics.rank, step=rank)
            if rank > 0:
                state.save()
            state.sync()
            self.assertEqual(state.step, 1)

        run_ranks(3, body)


if __name__ == "__main__":
    unittest.main()
