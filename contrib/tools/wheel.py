"""Build a wheel of gorun: the binding, the drop-in for Horovod, and the binary of one platform.

    python3 contrib/tools/wheel.py --binary bin/gorun --arch x86_64 --out build/wheel

Needs nothing but Python: a wheel is a zip with a list of its contents. The same input gives the same file.
The version is the binary's.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "contrib" / "python"
# The binary is static and runs with any libc, so the oldest of both kinds is good enough.
PLATFORMS = {
    "x86_64": "manylinux2014_x86_64.musllinux_1_1_x86_64",
    "aarch64": "manylinux2014_aarch64.musllinux_1_1_aarch64",
}
# What is not ours comes with licences of its own: gorun version --licenses prints them.
LICENSES = {"LICENSE": ROOT / "LICENSE", "THIRD_PARTY_LICENSES": ROOT / "cmd" / "gorun" / "THIRD_PARTY_LICENSES"}
# The project's name for pip, which stands in pyproject.toml alone.
NAME = r'^name = "(.*)"'
COMMANDS = "[console_scripts]\ngorun = gorun.console:gorun\nhorovodrun = gorun.console:horovodrun\n"


def find(text: str, pattern: str) -> str:
    """Return the only group of a pattern that must be in a text."""
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"wheel: error: no {pattern}")
    return found.group(1)


def contents(binary: Path) -> dict[str, bytes]:
    """Return the files of the wheel by path, without the metadata: what the binary has for Python, and the binary."""
    files = {}
    with zipfile.ZipFile(binary) as archive:
        for name in archive.namelist():
            files[name.removeprefix("shim/")] = archive.read(name)
    files["gorun/bin/gorun"] = binary.read_bytes()
    return files


def expression() -> str:
    """Return the licences of gorun and of the modules in it, as an SPDX expression."""
    text = LICENSES["THIRD_PARTY_LICENSES"].read_text(encoding="utf-8")
    found = re.findall(r"^  ([A-Z][\w.-]+(?: AND [\w.-]+)*)$", text.partition("=" * 80)[0], re.MULTILINE)
    return " AND ".join(sorted({"MIT", *" AND ".join(found).split(" AND ")}))


def metadata(version: str) -> str:
    """Return the text of METADATA, most of which pyproject.toml has."""
    project = (PYTHON / "pyproject.toml").read_text(encoding="utf-8")
    lines = {
        "Metadata-Version": "2.4",
        "Name": find(project, NAME),
        "Version": version,
        "Summary": find(project, r'^description = "(.*)"'),
        "Keywords": ",".join(re.findall(r'"(.*?)"', find(project, r"^keywords = \[(.*)\]"))),
        "Requires-Python": find(project, r'^requires-python = "(.*)"'),
        "License-Expression": expression(),
    }
    fields = list(lines.items())
    fields += [("License-File", name) for name in LICENSES]
    classifiers = re.search(r"^classifiers = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    if classifiers is None:
        raise SystemExit("wheel: error: no classifiers")
    fields += [("Classifier", name) for name in re.findall(r'"(.*?)"', classifiers.group(1))]
    fields += [("Description-Content-Type", "text/markdown")]
    head = "".join(f"{name}: {value}\n" for name, value in fields)
    return head + "\n" + (PYTHON / "README.md").read_text(encoding="utf-8")


def build(binary: Path, arch: str, out: Path) -> Path:
    """Write the wheel and return its path."""
    files = contents(binary)
    version = find(files["gorun/_version.py"].decode(), r'^__version__ = "(.*)"')
    tag = f"py3-none-{PLATFORMS[arch]}"
    name = re.sub(r"[-_.]+", "_", find((PYTHON / "pyproject.toml").read_text(encoding="utf-8"), NAME)).lower()
    info = f"{name}-{version}.dist-info"
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in PLATFORMS[arch].split("."))
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: gorun {version}\nRoot-Is-Purelib: false\n{tags}".encode()
    )
    files[f"{info}/entry_points.txt"] = COMMANDS.encode()
    files[f"{info}/top_level.txt"] = b"gorun\nhorovod\n"
    for file, path in LICENSES.items():
        files[f"{info}/licenses/{file}"] = path.read_bytes()
    record = f"{info}/RECORD"
    lines = []
    for file, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={digest},{len(data)}\n")
    files[record] = "".join([*lines, f"{record},,\n"]).encode()

    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in files.items():
            entry = zipfile.ZipInfo(file, (1980, 1, 1, 0, 0, 0))
            mode = 0o755 if file == "gorun/bin/gorun" else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--arch", choices=sorted(PLATFORMS), required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(build(args.binary, args.arch, args.out))


if __name__ == "__main__":
    main()
