"""The picture that README shows is the one of its recording."""

import sys
import unittest

from pages import ROOT


class PictureTest(unittest.TestCase):
    """The picture of a lost host is that of its recording."""

    def test_drawn_anew(self) -> None:
        sys.path.insert(0, str(ROOT / "contrib" / "demo"))
        import picture

        drawn = picture.draw((ROOT / "contrib" / "demo" / "loss.cast").read_text())
        self.assertEqual(drawn, (ROOT / "docs" / "pictures" / "loss.svg").read_text())


if __name__ == "__main__":
    unittest.main()
