"""Check the pages; each fault is one line, and the exit status is 1 if there are any.

    python check.py [--gorun BINARY] [--root DIR]
"""

import argparse
import sys
from pathlib import Path

from faults import Faults
from flags import Flags
from pages import ROOT
from source import Sources


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gorun", default=str(ROOT / "bin/gorun"), help="the binary whose flags pages may name")
    parser.add_argument("--root", type=Path, default=ROOT)
    args = parser.parse_args()
    faults = Faults()
    Sources(args.root, Flags.of(args.gorun), faults).check()
    for line in faults.lines():
        print(f"docs: error: {line}")
    if faults.places:
        sys.exit(f"docs: error: {len(faults.places)} faults in the documentation")
    print("docs: links, anchors, flags, targets, tests, paths and the navigation hold")


if __name__ == "__main__":
    main()
