"""The programs that are compared: how to find out whether they can run here, and how to start their ranks."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build"
BINARY = ROOT / "bin" / "gorun"
C = ROOT / "contrib" / "c"

GORUN, GORUN_C, GORUN_TORCH, LIMIT = "gorun", "gorun.h", "gorun's horovod.torch", "limit"
OPEN_MPI, MPICH, GLOO, HOROVOD = "Open MPI", "MPICH", "torch gloo", "stock Horovod"
GORUN_PRIVATE, GORUN_DDP = "gorun.h, ordinary memory", "gorun's torch.distributed"
GORUN_FSDP, GLOO_FSDP = "gorun's torch.distributed, FSDP", "torch gloo, FSDP"
OWN = [GORUN, GORUN_C, GORUN_PRIVATE, GORUN_TORCH, GORUN_DDP, GORUN_FSDP]
LIMIT_STAGED, LIMIT_READ = "limit: staged", "limit: read across processes"
PRIVATE_LIMITS = [LIMIT_STAGED, LIMIT_READ]
NAMES = [GORUN, GORUN_C, GORUN_TORCH, LIMIT, OPEN_MPI, MPICH, GLOO, HOROVOD]


@dataclass
class Setting:
    """The placement of ranks. hosts is empty on one host; run is the prefix of a command.

    Between hosts nic is the interface to use, "" for what the programs choose; the hosts of a lab have eth0.
    library is the directory of the libgorun.so that C programs load, "" for the gorun.c of this tree.
    """

    title: str
    ranks: int
    hosts: str = ""
    run: tuple[str, ...] = ()
    nic: str = "eth0"
    operation: str = "allreduce"
    binary: str = str(BINARY)
    library: str = ""

    def launcher(self) -> list[str]:
        return ["-np", str(self.ranks), *(["-H", self.hosts] if self.hosts else [])]

    def gorun(self) -> list[str]:
        """Starts ranks by gorun; the program and its arguments follow."""
        return [self.binary, *self.launcher(), "--no-tag-output"]


@dataclass
class Sizes:
    """Bytes of a tensor: begin, begin * factor … up to end; or the name of a measurement of rank.py."""

    begin: int = 0
    end: int = 0
    factor: int = 0
    name: str = ""

    def list(self) -> list[str]:
        if self.name:
            return [self.name]
        sizes, size = [], self.begin
        while size <= self.end:
            sizes.append(str(size))
            size *= self.factor
        return sizes


STEP, MANY, MANY_GRADIENTS = Sizes(name="step"), Sizes(name="many"), Sizes(name="many-gradients")
OVERLAP = Sizes(name="overlap")
ALONE = "of it the model alone"  # a row of STEP
STEP_BYTES = 102_228_128  # of ResNet-50's gradients
# The rows of OVERLAP.
OVERLAP_ROWS = ("a step whose backward waits", "the model alone, waiting", "a step", "the model alone")


@dataclass
class Program:
    name: str
    version: str
    command: Callable[[Setting, Sizes, float], list[str]]


def gorun(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    span = [
        "-b",
        str(sizes.begin),
        "-e",
        str(sizes.end),
        "-f",
        str(sizes.factor),
        "--min-time",
        f"{seconds}s",
    ]
    nic = ["--network-interfaces", setting.nic] if setting.hosts and setting.nic else []
    return [setting.binary, "bench", setting.operation, *setting.launcher(), *nic, "--json", *span]


def gorun_c(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    return [*setting.gorun(), *gorun_c_program(setting), "allreduce", str(seconds), *sizes.list()]


def gorun_private(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    program = [*gorun_c_program(setting), "private"]
    return [*setting.gorun(), *program, "allreduce", str(seconds), *sizes.list()]


def gorun_c_program(setting: Setting) -> list[str]:
    if setting.library:
        return ["env", f"LD_LIBRARY_PATH={setting.library}", str(BUILD / "gorun_c_linked")]
    return [str(BUILD / "gorun_c")]


# Runs a command beside so many processes that are busy.
BESIDE = """
busy=$1; shift
while [ "$busy" -gt 0 ]; do while :; do :; done & own="$own $!"; busy=$((busy - 1)); done
"$@"; code=$?
kill $own
exit $code
"""


def beside(program: Program, busy: int) -> Program:
    """The same program, on a machine that has something else to do."""

    def command(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
        return ["sh", "-c", BESIDE, "sh", str(busy), *program.command(setting, sizes, seconds)]

    return Program(f"{program.name}, beside {busy} busy processes", program.version, command)


def private_limit(way: str) -> Callable[[Setting, Sizes, float], list[str]]:
    """The limit of one host for tensors in memory of each rank alone, by a way of limit.c."""
    return lambda setting, sizes, seconds: [
        str(BUILD / "limit"), way, str(setting.ranks), str(seconds), *sizes.list()
    ]  # fmt: skip


def span(sizes: Sizes, seconds: float, operation: str = "allreduce") -> list[str]:
    what = [] if operation == "allreduce" else ["--operation", operation]
    return [*what, "--sizes", ",".join(sizes.list()), "--min-time", str(seconds)]


def gorun_torch(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    return [*setting.gorun(), python(), str(HERE / "horovod_torch.py"), *span(sizes, seconds)]


def torch_gloo(setting: Setting, sizes: Sizes, seconds: float, *env: str) -> list[str]:
    # gorun only starts these ranks; they talk to each other by gloo alone.
    nic = setting.nic if setting.hosts else "lo"
    return distributed(setting, sizes, seconds, *([f"GLOO_SOCKET_IFNAME={nic}"] if nic else []), *env)


def gorun_ddp(setting: Setting, sizes: Sizes, seconds: float, *env: str) -> list[str]:
    return distributed(setting, sizes, seconds, "BENCH_BACKEND=gorun", *env)


def distributed(setting: Setting, sizes: Sizes, seconds: float, *env: str) -> list[str]:
    program = [python(), str(HERE / "torch_gloo.py"), *span(sizes, seconds, setting.operation)]
    return [*setting.gorun(), "env", *env, *program]


def sharded(start: Callable[..., list[str]]) -> Callable[[Setting, Sizes, float], list[str]]:
    """Another starter of torch.distributed's ranks, whose step is FSDP's."""
    return lambda setting, sizes, seconds: start(setting, sizes, seconds, "BENCH_STEP=fsdp")


def open_mpi(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    # Unbound, because ranks may outnumber the CPUs; Open MPI then yields while it waits. Its tuned choice of
    # algorithms is the best of its settings in most sizes.
    flags = [
        *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
        "--oversubscribe",
        "--bind-to",
        "none",
        "--mca",
        "coll_tuned_priority",
        "100",
    ]
    if setting.hosts:
        flags += ["-H", setting.hosts, "--mca", "btl", "self,vader,tcp", "--mca", "pml", "ob1"]
    if setting.hosts and setting.nic:
        flags += ["--mca", "btl_tcp_if_include", setting.nic, "--mca", "oob_tcp_if_include", setting.nic]
    return [*mpirun(OPEN_MPI), *flags, *mpi_program("openmpi", setting, sizes, seconds)]


def mpich(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    flags = ["-hosts", setting.hosts] if setting.hosts else []
    if setting.hosts and setting.nic:
        flags += ["-iface", setting.nic]
    return [*mpirun(MPICH), *flags, *mpi_program("mpich", setting, sizes, seconds)]


def mpi_program(binary: str, setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    return ["-np", str(setting.ranks), str(BUILD / binary), setting.operation, str(seconds), *sizes.list()]


# The names of an MPI implementation's programs, and words of their output that identify it.
MPI = {
    OPEN_MPI: (
        ["mpirun.openmpi", "mpirun", "mpiexec"],
        ["mpicc.openmpi", "mpicc"],
        ("open mpi", "openrte", "openmpi"),
    ),
    MPICH: (
        ["mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra", "mpirun", "mpiexec"],
        ["mpicc.mpich", "mpicc"],
        ("hydra", "mpich"),
    ),
}


def whose(names: list[str], flag: str, words: tuple[str, ...]) -> str:
    """The first of the programs that is of the implementation with these words, "" if none is."""
    for name in names:
        if shutil.which(name) and any(word in output([name, flag]).lower() for word in words):
            return name
    return ""


@functools.cache
def mpirun(name: str) -> list[str]:
    launchers, _, words = MPI[name]
    return [whose(launchers, "--version", words) or launchers[0]]


def limit(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
    if not setting.hosts:
        return [str(BUILD / "limit"), str(setting.ranks), str(seconds), *sizes.list()]
    # gorun only starts these ranks; each has a bare connection to the next one.
    return [*setting.gorun(), str(BUILD / "limit_tcp"), "allreduce", str(seconds), *sizes.list()]


@functools.cache
def python() -> str:
    """This Python if it has torch, otherwise the first python3 on PATH that has; this one if none has."""
    found = [str(Path(directory, "python3")) for directory in os.get_exec_path()]
    for path in [sys.executable, *dict.fromkeys(found)]:
        if os.access(path, os.X_OK) and torch_of(path):
            return path
    return sys.executable


def torch_of(path: str) -> str:
    """The version of torch that a Python has, "" without."""
    return output([path, "-c", "import torch; print(torch.__version__)"])


def has_fsdp(torch: str) -> bool:
    """Whether this version of torch has fully_shard, for CPUs too."""
    major, minor = map(int, torch.split(".")[:2])
    return (major, minor) >= (2, 6)


def own() -> list[Program]:
    """The programs of gorun, and torch's gloo, that can run here; C programs are compiled to build/."""
    BUILD.mkdir(exist_ok=True)
    version = output([str(BINARY), "--version"])
    torch = torch_of(python())
    found = []
    if version:
        found.append(Program(GORUN, version, gorun))
    if version and torch:
        found += [Program(GORUN_TORCH, f"with torch {torch}", gorun_torch), Program(GLOO, torch, torch_gloo)]
        found.append(Program(GORUN_DDP, f"with torch {torch}", gorun_ddp))
        if has_fsdp(torch):
            found.append(Program(GORUN_FSDP, f"with torch {torch}", sharded(gorun_ddp)))
            found.append(Program(GLOO_FSDP, torch, sharded(torch_gloo)))
    if version and compiled_gorun_c("gorun_c", str(C / "gorun.c")):
        found.append(Program(GORUN_C, version, gorun_c))
        found.append(Program(GORUN_PRIVATE, version, gorun_private))
    return found


def find(horovod: str) -> list[Program]:
    """All programs that can run here. horovod: a Python with Horovod."""
    found = own()
    if all(compiled("cc", f"{name}.c", name, "-march=native") for name in ("limit", "limit_tcp")):
        found.append(Program(LIMIT, "limit.c, limit_tcp.c", limit))
        found.append(Program(LIMIT_STAGED, "limit.c", private_limit("staged")))
        found.append(Program(LIMIT_READ, "limit.c", private_limit("read")))
    for name, kind, run in ((OPEN_MPI, "openmpi", open_mpi), (MPICH, "mpich", mpich)):
        launchers, compilers, words = MPI[name]
        launcher, compiler = whose(launchers, "--version", words), whose(compilers, "-show", words)
        if launcher and compiler and compiled(compiler, "mpi_collective.c", kind):
            found.append(Program(name, first_version([launcher, "--version"]), run))
    if horovod:
        found.append(stock_horovod(horovod))
    return found


def stock_horovod(python: str) -> Program:
    python = os.path.abspath(python)  # ranks run elsewhere; but not where a link of a venv leads to
    launcher = str(Path(python).with_name("horovodrun"))
    version = output([python, "-c", "import horovod; print(horovod.__version__)"])
    if not version:
        sys.exit(f"bench: error: {python} has no horovod")

    def command(setting: Setting, sizes: Sizes, seconds: float) -> list[str]:
        hosts = ["-H", setting.hosts] if setting.hosts else []
        hosts += ["--network-interfaces", setting.nic] if setting.hosts and setting.nic else []
        program = [python, str(HERE / "horovod_torch.py"), *span(sizes, seconds, setting.operation)]
        return [launcher, "--gloo", "-np", str(setting.ranks), *hosts, "env", "PYTHONUNBUFFERED=1", *program]

    return Program(HOROVOD, version, command)


def compiled_gorun_c(binary: str, *library: str) -> bool:
    """Compiles the C program of gorun with a library: source, or what the linker takes."""
    return compiled(
        "cc", "gorun_allreduce.c", binary, "-march=native", "-pthread", f"-I{C}", *library
    )  # fmt: skip


def compiled(compiler: str, source: str, binary: str, *flags: str) -> bool:
    if not shutil.which(compiler):
        return False
    command = [compiler, "-O3", "-o", str(BUILD / binary), str(HERE / source), *flags, "-lm"]
    subprocess.run(command, check=True)
    return True


def first_version(command: list[str]) -> str:
    """The first line that has a number in it, which is not the first one of MPICH."""
    for line in output(command).splitlines():
        if any(c.isdigit() for c in line):
            return " ".join(line.split())
    return "unknown"


def output(command: list[str]) -> str:
    """The output of a command; empty if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def iperf(run: tuple[str, ...]) -> float:
    """Bytes a second that iperf3 moves between two lab hosts in one stream; 0 without iperf3."""
    if not shutil.which("iperf3"):
        return 0.0
    server = subprocess.Popen([*run[:-1], "exec", "1", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    said = "it says nothing"
    try:
        for _ in range(20):  # until the server listens
            text = output([*run[:-1], "exec", "2", "iperf3", "-c", "host1", "-t", "4", "-J"])
            report = json.loads(text) if text else {}
            if received := report.get("end", {}).get("sum_received"):
                return received["bits_per_second"] / 8
            said = report.get("error", said)
            time.sleep(0.1)
    finally:
        server.terminate()
        server.wait()
    sys.exit(f"iperf3 between two lab hosts: {said}")
