"""Other gorun binaries than bin/gorun: how they are found, built, and measured beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import programs
from programs import BUILD, ROOT, Program, Setting, Sizes

LIBRARY = "gorun/libgorun.so"  # in the archive that is a part of each binary


def find(named: str) -> Path:
    """The binary that the user named, by its path or by a commit, which is built."""
    if Path(named).is_file():
        return Path(named).resolve()
    git = ["git", "-C", str(ROOT)]
    commit = programs.output([*git, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}"])
    if not commit:
        sys.exit(f"bench: error: {named} is neither a binary nor a commit")
    directory = BUILD / "bench-check" / commit
    binary = directory / "bin" / "gorun"
    if not binary.exists():
        directory.mkdir(parents=True, exist_ok=True)
        archive = subprocess.Popen([*git, "archive", commit], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(directory)], stdin=archive.stdout, check=True)
        if archive.wait():
            sys.exit(f"bench: error: git archive {commit} fails")
        make = ["make", "-C", str(directory), "build", f"VERSION=0.0.0+{commit[:12]}"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return binary


def library_of(binary: Path, side: str) -> str:
    """The directory of a binary's libgorun.so, "" if it has none, and none can be made in its source tree."""
    directory = BUILD / "bench-check" / side
    directory.mkdir(parents=True, exist_ok=True)
    library, source = directory / "libgorun.so", binary.parent.parent / "contrib" / "c" / "gorun.c"
    with zipfile.ZipFile(binary) as archive:
        if LIBRARY in archive.namelist():
            library.write_bytes(archive.read(LIBRARY))
            return str(directory)
    if not source.exists() or not shutil.which("cc"):
        return ""
    flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-Wl,-soname,libgorun.so"]
    subprocess.run(["cc", *flags, "-o", str(library), str(source), "-lpthread"], check=True)
    return str(directory)


def linked(libraries: list[str]) -> bool:
    """Compiles the C program that loads any of these libraries; False if one is missing, or cc."""
    return all(libraries) and programs.compiled_gorun_c("gorun_c_linked", f"{libraries[0]}/libgorun.so")


def by(program: Program, name: str, binary: Path, library: str) -> Program:
    """A program of gorun, started by another binary, under another name."""

    def command(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
        return program.command(replace(setting, binary=str(binary), library=library), sizes, seconds)

    own = program.version == programs.output([str(programs.BINARY), "--version"])
    version = programs.output([str(binary), "--version"]) if own else program.version
    return Program(name, version, command)
