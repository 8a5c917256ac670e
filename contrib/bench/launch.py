#!/usr/bin/env python3
"""Measures how long a launch takes: `-np 2`, 16 and 64 of /bin/true, a rank on each of as many addresses that
lead to one sshd, by gorun and by the launchers of Open MPI and MPICH.

In each round every launcher runs once, one after the other. The table shows the median over the rounds.
Resident daemons start after everything else has been measured: 64 of them keep one machine busy.
Below the table the program compares the medians. With --check it exits with 1 if gorun misses one of its
targets. It needs root. Launcher and hosts are two network namespaces of this machine, which disappear when
the program ends.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import pwd
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = ROOT / "bin" / "gorun"
TIMEOUT = 120  # seconds, of one launch
PORT = 2222
LAUNCHER = "10.88.0.254"
SPARES = 4  # seconds, until each resident daemon has started a daemon for its first job
ATONCE = 8  # plain ssh logins, as many as gorun has under way with one sshd

GORUN, COLD, CLUSTER, SSH = "gorun", "gorun, cold", "gorun --cluster", "plain ssh"
OPEN_MPI, MPICH = "Open MPI", "MPICH"
PEERS = (OPEN_MPI, MPICH)


def call(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Machine:
    """Two network namespaces: ours with the addresses and the sshd, and the launcher's."""

    def __init__(self, directory: Path, addresses: int) -> None:
        self.dir = directory
        self.addresses = [f"10.88.0.{n + 1}" for n in range(addresses)]
        self.outside = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        while os.readlink(f"/proc/{self.outside.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        inside = "".join(f"address add {a}/24 dev hosts\n" for a in self.addresses)
        batch = f"link set lo up\nlink add hosts type veth peer name eth0 netns {self.outside.pid}\n"
        lines = f"{batch}{inside}link set hosts up\n"
        subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)
        call(*self.enter(), "ip", "link", "set", "lo", "up")
        call(*self.enter(), "ip", "address", "add", f"{LAUNCHER}/24", "dev", "eth0")
        call(*self.enter(), "ip", "link", "set", "eth0", "up")
        self.config = str(directory / "ssh_config")
        self.hide_login_files()
        self.start_sshd()

    def enter(self) -> list[str]:
        return ["nsenter", "--net", "--target", str(self.outside.pid)]

    def hide_login_files(self) -> None:
        """Keeps this machine's login files out of the measurement; the mounts vanish with the namespace."""
        empty = self.dir / "empty"
        empty.touch()
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        for name in (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshenv", ".ssh/rc"):
            if (home / name).is_file():
                call("mount", "--bind", str(empty), str(home / name))

    def start_sshd(self) -> None:
        for name in ("host_key", "id"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.dir / name))
        Path("/run/sshd").mkdir(exist_ok=True)
        (self.dir / "sshd_config").write_text(
            f"Port {PORT}\nHostKey {self.dir}/host_key\nPidFile none\nAuthorizedKeysFile {self.dir}/id.pub\n"
            f"StrictModes no\nUsePAM no\nUseDNS no\nPermitRootLogin yes\nMaxStartups 1000\n"
            f"SetEnv XDG_CACHE_HOME={self.dir}/cache\n"
        )
        key = (self.dir / "host_key.pub").read_text().split()[:2]
        (self.dir / "known_hosts").write_text(
            "".join(f"[{a}]:{PORT} {' '.join(key)}\n" for a in self.addresses)
        )
        Path(self.config).write_text(
            f"Host *\n  Port {PORT}\n  User root\n  IdentityFile {self.dir}/id\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.dir}/known_hosts\n  BatchMode yes\n"
        )
        log = (self.dir / "sshd.log").open("w")
        subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(self.dir / "sshd_config")], stderr=log)
        for _ in range(200):
            if "listening" in (self.dir / "sshd.log").read_text():
                return
            time.sleep(0.05)
        sys.exit(f"bench: error: sshd does not start: {(self.dir / 'sshd.log').read_text()}")

    def start_daemons(self) -> None:
        """A resident daemon of one slot for each address."""
        key = self.dir / "key"
        key.write_bytes(os.urandom(32).hex().encode())
        key.chmod(0o600)
        logs = []
        for address in self.addresses:
            log = self.dir / f"{address}.log"
            logs.append(log)
            words = [str(BINARY), "worker", "--cluster-key-file", str(key), "--slots", "1", "--name", address]
            words += ["--listen", f"{address}:7575", "--address", address, "--join", self.addresses[0]]
            words += ["--allow-root"]
            env = {**os.environ, "XDG_STATE_HOME": str(self.dir / "state")}  # without the user's own jobs
            subprocess.Popen(words, stderr=log.open("w"), stdin=subprocess.DEVNULL, env=env)
        ps = [*self.enter(), str(BINARY), "ps", *self.cluster(), "--json"]
        for _ in range(600):
            done = subprocess.run(ps, capture_output=True, text=True)
            if done.returncode == 0 and len(json.loads(done.stdout)["members"]) == len(self.addresses):
                time.sleep(SPARES)
                return
            time.sleep(0.1)
        sys.exit(f"bench: error: the daemons do not find each other: {done.stdout}{done.stderr}")

    def cluster(self) -> list[str]:
        return ["--cluster", self.addresses[0], "--cluster-key-file", str(self.dir / "key")]


def commands(machine: Machine) -> dict[str, Callable[[int], list[str]]]:
    """The launchers that are there, by name."""

    def hosts(n: int, slots: str = "") -> str:
        return ",".join(a + slots for a in machine.addresses[:n])

    def gorun(n: int) -> list[str]:
        return [str(BINARY), "--ssh-config", machine.config, "-np", str(n), "-H", hosts(n, ":1"), "/bin/true"]

    def cold(n: int) -> list[str]:
        shutil.rmtree(machine.dir / "cache", ignore_errors=True)
        return gorun(n)

    def ssh(n: int) -> list[str]:
        words = ["xargs", "-P", str(ATONCE), "-I{}", "ssh", "-F", machine.config, "{}", "/bin/true"]
        return ["sh", "-c", f'printf "%s\\n" {hosts(n).replace(",", " ")} | {" ".join(words)}']

    def cluster(n: int) -> list[str]:
        return [str(BINARY), *machine.cluster(), "-np", str(n), "/bin/true"]

    def open_mpi(n: int) -> list[str]:
        words = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_args", f"-F {machine.config}"]
        return [*words, "-np", str(n), "-H", hosts(n, ":1"), "/bin/true"]

    def mpich(n: int) -> list[str]:
        words = ["mpiexec.hydra", "-launcher", "ssh", "-localhost", LAUNCHER]
        return [*words, "-n", str(n), "-ppn", "1", "-hosts", hosts(n), "/bin/true"]

    found = {GORUN: gorun, COLD: cold, CLUSTER: cluster, SSH: ssh}
    if shutil.which("mpirun.openmpi"):
        found[OPEN_MPI] = open_mpi
    if shutil.which("mpiexec.hydra"):
        found[MPICH] = mpich
    return found


def once(machine: Machine, name: str, words: list[str]) -> float:
    """Seconds of one launch, infinite if it failed."""
    env = {**os.environ, "HOME": str(machine.dir), "HYDRA_LAUNCHER_EXTRA_ARGS": f"-F {machine.config}"}
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [*machine.enter(), *words],
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        print(f"bench: {name}: no end after {TIMEOUT} s", file=sys.stderr)
        return math.inf
    took = time.monotonic() - begin
    if done.returncode != 0:
        print(f"bench: {name}: exit status {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
        return math.inf
    return took


def millis(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if math.isfinite(seconds) else "failed"


def median(runs: list[float]) -> float:
    """The median of the launches that succeeded; infinite if most did not."""
    good = [t for t in runs if math.isfinite(t)]
    return statistics.median(good) if 2 * len(good) >= len(runs) and good else math.inf


def cell(runs: list[float]) -> str:
    good = [t for t in runs if math.isfinite(t)]
    if not good:
        return "failed"
    text = f"{millis(median(runs))} ({millis(min(good))}–{millis(max(good))})"
    return text if len(good) == len(runs) else f"{text}, {len(runs) - len(good)} of {len(runs)} failed"


def table(times: dict[int, dict[str, list[float]]]) -> list[str]:
    """Rows by number of ranks: median and extremes of each launcher."""
    names = list(next(iter(times.values())))
    lines = ["| ranks | " + " | ".join(names) + " |", "|---:|" + "---:|" * len(names)]
    for ranks, by_name in times.items():
        lines.append(f"| {ranks} | " + " | ".join(cell(by_name[name]) for name in names) + " |")
    return lines


def verdicts(times: dict[int, dict[str, list[float]]]) -> list[tuple[bool, str]]:
    """gorun's goals, and whether it meets them: ahead of both others; beyond as many plain logins at most a
    third of their time; with resident daemons, at 64 ranks, ten times as fast as the best of them."""
    out = []
    for ranks, by_name in times.items():
        peers = {n: median(by_name[n]) for n in PEERS if n in by_name and math.isfinite(median(by_name[n]))}
        if not peers:
            continue
        best = min(peers, key=lambda n: peers[n])
        floor = median(by_name[SSH]) if SSH in by_name else math.inf
        for name in (GORUN, COLD):
            if name not in by_name:
                continue
            ours = median(by_name[name])
            said = f"{ranks} ranks, {name}: {millis(ours)} ms, {best} {millis(peers[best])} ms"
            out.append((ours < peers[best], said))
            for peer, theirs in peers.items():
                # A launcher below the floor logs in cheaper than ssh does, and adds nothing of its own.
                holds = ours <= floor or ours - floor <= (theirs - floor) / 3
                share, others = 1000 * (ours - floor), 1000 * (theirs - floor)
                text = f"over plain ssh {share:.0f} ms, {peer} {others:.0f} ms"
                if math.isfinite(floor):
                    out.append((holds, f"{ranks} ranks, {name}: {text}"))
        if CLUSTER in by_name and ranks >= 64:
            ours = median(by_name[CLUSTER])
            said = f"{ranks} ranks, {CLUSTER}: {millis(ours)} ms, 1/{peers[best] / ours:.1f} of {best}"
            out.append((10 * ours <= peers[best], said))
    return out


def measure(
    machine: Machine,
    launchers: dict[str, Callable[[int], list[str]]],
    times: dict[int, dict[str, list[float]]],
    rounds: int,
) -> None:
    for name in [n for n in launchers if n != COLD]:  # each has run once: files are in memory
        once(machine, name, launchers[name](min(times)))
    for ranks, by_name in times.items():
        by_name |= {name: [] for name in launchers}
        for number in range(rounds):
            print(f"{ranks} ranks: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for name, command in launchers.items():
                by_name[name].append(once(machine, name, command(ranks)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure launches side by side.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without", nargs="*", default=[], help="launchers to leave out")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a clause does not hold")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-launch.md")
    args = parser.parse_args()
    if os.environ.get("GORUN_BENCH_INSIDE") != "1":
        if os.getuid() != 0:
            sys.exit("bench: error: needs root, for network namespaces")
        os.environ["GORUN_BENCH_INSIDE"] = "1"
        inside = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp(inside[0], [*inside, sys.executable, "-B", *sys.argv])
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="gorun-bench-") as directory:
        machine = Machine(Path(directory), max(args.ranks))
        launchers = {n: f for n, f in commands(machine).items() if n not in args.without}
        times: dict[int, dict[str, list[float]]] = {ranks: {} for ranks in args.ranks}
        measure(machine, {n: f for n, f in launchers.items() if n != CLUSTER}, times, args.rounds)
        if CLUSTER in launchers:
            machine.start_daemons()
            measure(machine, {CLUSTER: launchers[CLUSTER]}, times, args.rounds)
    text = [
        "# Launches of /bin/true",
        "",
        f"A rank on each address, all of one sshd; ms, median (extremes) of {args.rounds} rounds. "
        f"{SSH} logs in and out, {ATONCE} at a time. {platform.machine()}, {os.cpu_count()} CPUs, "
        f"load {load:.1f} before the start{'' if load < 1 else ': do not trust these numbers'}.",
        "",
        *table(times),
        "",
        *(f"- {'holds' if holds else 'DOES NOT HOLD'}: {said}" for holds, said in verdicts(times)),
        "",
    ]
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text("\n".join(text))
    print("\n".join(text))
    if args.check and not all(holds for holds, _ in verdicts(times)):
        sys.exit(1)


if __name__ == "__main__":
    main()
