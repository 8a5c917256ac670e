"""Have zig, a C compiler for each architecture and old versions of glibc, in a directory: zig.py DIRECTORY

It is the wheel ziglang of PyPI, or of the index that PIP_INDEX_URL names, known by its hash. Neither pip nor venv is needed.
DIRECTORY/ready says that DIRECTORY/ziglang/zig is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import ssl
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import IO
from urllib.parse import urljoin

VERSION = "0.16.0"
# https://pypi.org/project/ziglang/0.16.0/#files
WHEELS = {
    ("Linux", "x86_64"): "9fcda73f62b851dd72a54b710ad40a209896db14cfb13649e62191243556342b",
    ("Linux", "aarch64"): "e27d409812b11e0fb89ed0200cf2e55b6464d43f9461553104e4a4f9a94a1fd5",
    ("Darwin", "x86_64"): "18e14f6b25678d7b7c65708c82501ee6090fe39ed5c783477d56267af1fa5629",
    ("Darwin", "arm64"): "b61e5413c49508d9d62e5dcea543e3af491594154d74a00ff52f84ed508260cc",
}
SECONDS = 30  # without a byte


def main() -> int:
    """Return 0 once zig is there, else 1 after a line that says why it is not."""
    directory = Path(sys.argv[1])
    machine = platform.system(), platform.machine()
    try:
        have(directory, WHEELS[machine])
    except KeyError:
        print(f"zig: error: no zig is known for {' on '.join(machine)}", file=sys.stderr)
    except (OSError, ValueError, StopIteration) as error:
        print(f"zig: error: get zig {VERSION} from {_index()}: {error or 'it has none'}", file=sys.stderr)
    else:
        return 0
    return 1


def have(directory: Path, sha256: str) -> None:
    """Download and unpack the wheel of a hash, unless that was done."""
    if (directory / "ready").exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        _download(sha256, file)
        with zipfile.ZipFile(file) as wheel, tempfile.TemporaryDirectory(dir=directory) as new:
            wheel.extractall(new)
            os.chmod(f"{new}/ziglang/zig", 0o755)
            try:
                os.rename(f"{new}/ziglang", directory / "ziglang")
            except OSError:  # another make was faster
                if not (directory / "ziglang" / "zig").exists():
                    raise
    (directory / "ready").touch()


def _index() -> str:
    return os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


def _download(sha256: str, to: IO[bytes]) -> None:
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    page = urllib.request.Request(f"{_index()}/ziglang/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(page, timeout=SECONDS, context=context) as answer:
        url = next(urljoin(answer.url, f["url"]) for f in json.load(answer)["files"] if f["hashes"].get("sha256") == sha256)
    hasher = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=SECONDS, context=context) as answer:
        size = int(answer.headers["Content-Length"])
        print(f"zig {VERSION}, a C compiler: {size >> 20} MiB from {_index()}", end="", flush=True)
        while piece := answer.read(8 << 20):
            to.write(piece)
            hasher.update(piece)
            print(".", end="", flush=True)
    print()
    if hasher.hexdigest() != sha256:
        raise ValueError(f"{url} is not the file of {VERSION}")


if __name__ == "__main__":
    sys.exit(main())
