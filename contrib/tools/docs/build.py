"""Build the documentation site from docs and the other pages into build/site.

    python build.py
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pages import ROOT, Stage

STAGED = ROOT / "build/docs"
SITE = ROOT / "build/site"


def main() -> None:
    Stage(ROOT, STAGED).write()
    shutil.rmtree(SITE, ignore_errors=True)
    # From a copy of its configuration in build, it keeps its cache there too.
    config = (ROOT / "mkdocs.yml").read_text()
    (ROOT / "build/mkdocs.yml").write_text(config.replace("_dir: build/", "_dir: "))
    zensical = Path(sys.executable).with_name("zensical")
    # Its warnings of links are repeated by the check of the built site, which sees anchors as well.
    done = subprocess.run(
        [zensical, "build", "--clean", "-f", "build/mkdocs.yml"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
    )
    if done.returncode or not (SITE / "index.html").exists():
        sys.exit(f"{done.stdout}{done.stderr}docs: error: zensical could not build the site")
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}: open index.html")


main()
