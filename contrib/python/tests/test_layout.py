"""Which tensors travel as one."""

import unittest

from gorun.layout import dealt


class LayoutTest(unittest.TestCase):
    def test_dealt(self):
        self.assertEqual(dealt([5, 5, 6, 20, 1], 10), [[0, 1], [2], [3], [4]])
        self.assertEqual(dealt([5, 1, 3], 0), [[0], [1], [2]])
        self.assertEqual(dealt([], 10), [])
