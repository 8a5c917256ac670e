"""Each sample of an epoch goes to one rank, in one step, whatever worlds there are."""

import collections
import os
import random
import unittest
from unittest import mock

from tests_path import need

np = need("numpy")

from gorun import basics, sampling  # noqa: E402
from gorun.sampling import ExactSampler, Permutation, divide  # noqa: E402


def world(rank, size):
    """Be a rank of a world."""
    return mock.patch.multiple(basics, rank=lambda: rank, size=lambda: size)


class PermutationTest(unittest.TestCase):
    def test_is_a_permutation(self):
        for n in (*range(1, 70), 997, 1000, 1024, 4097, 10007):
            for key in 0, -5:
                order = Permutation(n, key)
                self.assertEqual(sorted(order), list(range(n)), (n, key))
                with mock.patch.object(sampling, "numpy", None):
                    listed = order.between(0, n)
                self.assertEqual(order.between(0, n).tolist(), listed)
                self.assertEqual(listed[:50], [order[i] for i in range(min(n, 50))])
        with self.assertRaises(IndexError):
            order[n]

    def test_far_places_take_no_time(self):
        order = Permutation(10**12, 3)
        some = order.between(10**11, 10**11 + 1000)
        self.assertEqual(len(set(some.tolist())), 1000)
        self.assertTrue(450 < (some < 5 * 10**11).sum() < 550)

    def test_every_order_is_as_likely(self):
        """Coarsely: all orders of four, what comes first of many, and which follows which."""
        orders = collections.Counter(tuple(Permutation(4, key)) for key in range(24000))
        self.assertEqual(len(orders), 24)
        self.assertLess(sum((n - 1000) ** 2 / 1000 for n in orders.values()), 60)  # 23 degrees of freedom
        n = 50
        table = np.zeros((n, n))
        follows = np.zeros((n, n))
        for key in range(5000):
            order = Permutation(n, key).between(0, n)
            table[np.arange(n), order] += 1
            follows[order[:-1], order[1:]] += 1
        for counts, each in (table, 100), (follows, 98):
            off = ~np.eye(n, dtype=bool) if counts is follows else np.ones((n, n), dtype=bool)
            each = counts[off].mean()
            self.assertLess(((counts[off] - each) ** 2 / each).mean(), 1.15)
            self.assertLess(abs(counts[off] - each).max(), 6 * each**0.5)


class ExactSamplerTest(unittest.TestCase):
    def test_once_in_whatever_worlds(self):
        for seed in range(100):
            rng = random.Random(seed)
            n, each = rng.randint(1, 200), rng.randint(1, 9)
            orders = []
            state = ExactSampler(n, each, seed=seed).state_dict()
            wanted = list(Permutation(n, seed << 32))
            while state["position"] < n:
                size, steps = rng.randint(1, 5), rng.randint(1, 6)
                start, ranks = dict(state), []
                for rank in range(size):
                    with world(rank, size):
                        sampler = ExactSampler(n, each, seed=seed)
                        sampler.load_state_dict(start)
                        batches, weights, fetched = [], [], iter(sampler)
                        self.assertEqual(len(sampler), len(list(sampler)))
                        ahead = [next(fetched, None) for _ in range(3)]  # a loader fetches early
                        for batch in (*(b for b in ahead if b), *fetched):
                            if len(batches) == steps:
                                break
                            batches.append(batch)
                            weights.append(sampler.weight())
                            sampler.advance()
                        ranks.append((batches, weights))
                        state = sampler.state_dict()
                self.assertEqual({len(batches) for batches, _ in ranks}, {len(ranks[0][0])})
                for step in range(len(ranks[0][0])):
                    parts = [(batches[step], weights[step]) for batches, weights in ranks]
                    orders += [i for batch, weight in parts if weight for i in batch]
                    # The average of the ranks' weighted means is the mean of the whole batch.
                    whole = [i for batch, weight in parts if weight for i in batch]
                    mean = sum(w * sum(b) / len(b) for b, w in parts) / size
                    self.assertAlmostEqual(mean, sum(whole) / len(whole))
            self.assertEqual(orders, wanted, seed)

    def test_the_batch_of_a_step_is_kept(self):
        n, each = 101, 5
        with world(0, 3), mock.patch.dict(os.environ, GORUN_ON_LOSS="keep-batch"):
            state = ExactSampler(n, each).state_dict()
        wanted = list(Permutation(n, 0))
        for size, passes in (3, 1), (2, 2), (1, 3), (4, 1), (2, 2):
            ranks = []
            for rank in range(size):
                with world(rank, size):
                    sampler = ExactSampler(n, each, keep_batch=True)
                    sampler.load_state_dict(state)
                    steps, parts = [], []
                    self.assertEqual(sampler.passes, passes)
                    self.assertEqual(len(sampler), len(list(sampler)))
                    for batch in sampler:
                        self.assertLessEqual(len(batch), each)
                        parts.append((batch, sampler.weight()))
                        complete = sampler.completes()
                        sampler.advance()
                        if complete:
                            steps.append(parts)
                            parts = []
                    self.assertEqual((parts, sampler.position), ([], n))
                    with self.assertRaisesRegex(ValueError, "keep the batch"):
                        sampler.indices()
                    sampler.load_state_dict(state)
                    sampler.advance()
                    self.assertEqual(sampler.amid_step, passes > 1)
                    sampler.next_epoch()
                    self.assertFalse(sampler.amid_step)
                ranks.append(steps)
            position = state["position"]
            for step in zip(*ranks):
                whole = wanted[position : position + 3 * each]
                self.assertEqual([i for parts in step for batch, w in parts if w for i in batch], whole)
                mean = sum(w * sum(b) / len(b) for parts in step for b, w in parts) / size
                self.assertAlmostEqual(mean, sum(whole) / len(whole))
                position += len(whole)
            self.assertEqual(position, n)
            state["position"] += 3 * each  # the next world begins with another step

    def test_indices(self):
        for n, each, size, position in (103, 5, 4, 20), (8, 3, 3, 0), (7, 2, 1, 7), (40, 5, 4, 0):
            for shuffle in True, False:
                for rank in range(size):
                    with world(rank, size):
                        sampler = ExactSampler(range(n), each, shuffle=shuffle)
                        sampler.position = position
                        indices = sampler.indices()
                        first, last = divide((n - position) % (each * size), rank, size)
                        batches = list(sampler)
                        if batches and first == last and len(indices) // each < len(batches):
                            batches.pop()
                        self.assertEqual(list(indices), sum(batches, []))
                        self.assertEqual(indices[1:3], list(indices)[1:3])

    def test_a_batch_of_another_world(self):
        """A batch that four ranks have trained is left behind by two or six, and the rest is trained once."""
        for n, size in (100, 2), (100, 6), (30, 2), (24, 2), (20, 6):
            order = list(Permutation(n, 0))
            trained = []
            for rank in range(size):
                with world(rank, size):
                    sampler = ExactSampler(n, 4)
                    sampler.position = 10
                    sampler.repeat(4)
                    batches = list(sampler)
                    self.assertEqual(len(sampler), len(batches))
                    self.assertLessEqual(max(map(len, batches)), 4)
                    for i, batch in enumerate(batches):
                        trained += batch if i and sampler.weight() else []
                        sampler.advance()
                    self.assertEqual(sampler.position, n)
            self.assertEqual(sorted(trained), sorted(order[26:]))

    def test_a_batch_of_another_world_begins_the_epoch(self):
        """A world that begins at the end of an epoch may be lost in the first step of the next one."""
        with world(0, 2):
            sampler = ExactSampler(100, 4)
            sampler.position = 100
            sampler.repeat(3)
            sampler.next_epoch()
            sampler.advance()
            self.assertEqual((sampler.epoch, sampler.position), (1, 12))
            sampler.next_epoch()  # amid the epoch
            sampler.advance()
            self.assertEqual((sampler.epoch, sampler.position), (2, 8))

    def test_epochs(self):
        with world(0, 1):
            sampler = ExactSampler(100, 10)
            first = list(sampler)
            sampler.next_epoch()
            self.assertNotEqual(list(sampler), first)
            sampler.load_state_dict({"epoch": 0, "position": 0})
            self.assertEqual(list(sampler), first)
            self.assertNotEqual(list(ExactSampler(100, 10, seed=1)), first)
