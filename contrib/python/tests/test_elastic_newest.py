"""All go on from the newest copy that a rank has."""

import random
import unittest
from unittest import mock

from tests_path import need

need("numpy")
from fake import run_ranks  # noqa: E402

from gorun import basics  # noqa: E402
from gorun.elastic import ObjectState, State, newest, run_fn  # noqa: E402
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: E402
from gorun.objects import allgather_object, broadcast_object  # noqa: E402


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

    def test_state_of_values_alone(self):
        """ObjectState(step=0) shares its values by itself."""

        def body(rank):
            state = ObjectState(step=rank)
            state.sync()
            self.assertEqual(state.step, 0)

        run_ranks(2, body)

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


class SkipTest(unittest.TestCase):
    """Whether the state is shared anew is decided in the next world, by all that are there."""

    def sharing(self, *left):
        """Let ranks leave a world with these exceptions, None: a new one; return who shares in the next."""
        shared = []

        class Recorder(State):
            def restore(self):
                pass

            def sync(self):
                if basics.is_initialized():
                    newest(self._commits)
                    shared.append(basics.rank())

        def body(rank):
            leaving = [failure for failure in left[rank : rank + 1] if failure]
            if not leaving:
                basics.init()

            def train(state):
                if leaving:
                    raise leaving.pop()
                return allgather_object(rank, name="trains")

            trained = run_fn(train, basics.init)(Recorder(broadcast_object, basics.rank))
            self.assertEqual(trained, list(range(len(left))))

        run_ranks(len(left), body, initialized=False)
        return sorted(shared)

    def test_all_share_or_none(self):
        removed, added = HostsUpdatedInterrupt(True), HostsUpdatedInterrupt(False)
        failed = HorovodInternalError("a host died")
        self.assertEqual(self.sharing(removed, removed, removed), [])
        self.assertEqual(self.sharing(removed), [])
        for other in None, added, failed:
            self.assertEqual(self.sharing(removed, removed, other), [0, 1, 2], other)
        self.assertEqual(self.sharing(failed, removed), [0, 1])
