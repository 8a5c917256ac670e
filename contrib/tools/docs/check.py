"""Check the pages and the built site; each fault is one line, and the exit status is 1 if there are any.

    python check.py [--gorun BINARY] [--root DIR] [--no-site]
"""

import argparse
import sys
from pathlib import Path

import readability
from built import Site
from faults import Faults
from flags import Flags
from pages import ROOT
from source import Sources


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gorun", default=str(ROOT / "bin/gorun"), help="the binary whose flags pages may name")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--no-site", action="store_true", help="check only the sources")
    args = parser.parse_args()
    faults = Faults()
    sources = Sources(args.root, Flags.of(args.gorun), faults)
    sources.check()
    print(readability.check(args.root, sources.texts, faults))
    if not args.no_site:
        Site(args.root, faults).check()
    for line in faults.lines():
        print(f"docs: error: {line}")
    if faults.places:
        sys.exit(f"docs: error: {len(faults.places)} faults in the documentation")
    print("docs: links, anchors, flags, targets, tests, paths and the navigation hold")


if __name__ == "__main__":
    main()
