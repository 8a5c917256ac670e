"""A training loop in which a rank has the fault that the first argument names, once some steps are done.

Ranks meet in three operations per step, with little data but for faults of the network. Whatever a fault changes on its
host is undone when the next job begins there, or goes with the host.
"""

import ctypes
import fcntl
import mmap
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import gorun
import gorun.numpy as hvd
import numpy as np
from gorun import basics
from gorun.constants import BARRIER

FAULT, RANK, DIRECTORY, DISK = sys.argv[1:]
PLANTED_AT = 12  # steps
EPOCH = 5  # steps, where the fault is about epochs
GROUPS = "/sys/fs/cgroup"


def barrier(name):
    session = basics.world().session
    session.wait(session.submit(BARRIER, name, 0, (), None, None))


def device():
    with open("/proc/net/route") as routes:
        names = [line.split()[0] for line in routes][1:]
    return names[0] if names else next(n for n in os.listdir("/sys/class/net") if n != "lo")


def shape(*how):
    """Let the NIC of this host delay, lose or limit what it sends."""
    subprocess.run(["tc", "qdisc", "replace", "dev", device(), "root", *how], check=True)


def limit(controller, **files):
    """Put this process into a control group with limits."""
    with open("/proc/self/cgroup") as f:
        old = [line.split(":")[1] for line in f if controller in line.split(":")[1].split(",")]
    if not os.path.ismount(GROUPS):  # hosts of a lab have none
        subprocess.run(["mount", "-t", "tmpfs" if old else "cgroup2", "none", GROUPS], check=True)
    at = f"{GROUPS}/{controller}" if old else GROUPS
    if not os.path.ismount(at):
        os.makedirs(at, exist_ok=True)
        subprocess.run(["mount", "-t", "cgroup", "-o", old[0], "none", at], check=True)
    group = f"{at}/gorun-{os.path.basename(DISK)}-{os.getpid()}"
    os.makedirs(group, exist_ok=True)
    for name, value in files.items():
        path = f"{group}/{name.replace('__', '.')}"
        if os.path.exists(path):
            with open(path, "w") as f:
                f.write(value)
    with open(f"{group}/cgroup.procs", "w") as f:
        f.write(str(os.getpid()))


def detached(argv):
    """Start a process that is nobody's child."""
    if os.fork() == 0:
        if os.fork() == 0:
            os.execvp(argv[0], argv)
        os._exit(0)
    os.wait()


def unanswered(point):
    """Mount a file system whose server never answers."""
    os.makedirs(point, exist_ok=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"absent", point.encode(), b"fuse", 0, options) != 0:
        raise OSError(ctypes.get_errno(), "mount", point)


def spin(seconds=None):
    end = time.monotonic() + (seconds or 1e9)
    while time.monotonic() < end:
        pass


def work():
    """Take about five milliseconds of CPU time."""
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass


class Loader:
    """Batches; a worker of the loader of the faulty rank dies or hangs, or it is slow."""

    def __init__(self):
        self.slow = 0.0
        self.worker = None

    def __iter__(self):
        step = 0
        while True:
            if self.slow:
                time.sleep(self.slow)
            if self.worker is not None:
                self.queue.get()
            yield step
            step += 1

    def hang(self):
        self.queue = multiprocessing.SimpleQueue()
        self.worker = multiprocessing.Process(target=time.sleep, args=(1000,), daemon=True)
        self.worker.start()

    def lose(self):
        self.hang()
        os.kill(self.worker.pid, signal.SIGKILL)


loader = Loader()


def hold_lock(held, wanted, ready):
    with held:
        ready.set()
        time.sleep(0.2)
        with wanted:
            pass


def deadlock():
    a, b, ready = threading.Lock(), threading.Lock(), threading.Event()
    threading.Thread(target=hold_lock, args=(b, a, ready), daemon=True).start()
    ready.wait()
    with a, b:
        pass


def hog():
    ctypes.PyDLL(None).sleep(1000)  # a PyDLL keeps the interpreter lock


def thrash():
    path = os.path.join(DISK, "large")
    with open(path, "w+b") as f:
        f.writelines(os.urandom(1 << 20) for _ in range(96))
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        large = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    os.remove(path)
    large.madvise(mmap.MADV_RANDOM)
    limit("memory", memory__limit_in_bytes=str(40 << 20), memory__max=str(40 << 20))
    return large


def fill():
    os.makedirs(DIRECTORY, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", DIRECTORY], check=True)
    with open(os.path.join(DIRECTORY, "checkpoint"), "wb", buffering=0) as f:
        while True:  # as savers do that hope for room
            try:
                f.write(b"x" * 4096)
            except OSError:
                time.sleep(0.05)


def unanswering():
    """Wait for a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.recv(1)


def locked():
    """Wait for the lock of a file that another process has."""
    with open(os.path.join(DISK, "lock"), "w") as f:
        holder = subprocess.Popen(["flock", f.name, "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE)
        holder.stdout.readline()
        fcntl.flock(f, fcntl.LOCK_EX)


def plant():
    """Have the fault begin; return what every further step does."""
    if FAULT in ("slow loader", "other clocks"):
        loader.slow = 0.15
    elif FAULT == "dead loader worker":
        loader.lose()
    elif FAULT == "hung loader worker":
        loader.hang()
    elif FAULT == "loop":
        return spin
    elif FAULT == "sleep":
        return lambda: time.sleep(1000)
    elif FAULT == "child":
        return lambda: subprocess.run(["sleep", "1000"], check=True)
    elif FAULT == "server":
        return unanswering
    elif FAULT == "file lock":
        return locked
    elif FAULT == "exit":
        return lambda: os._exit(3)
    elif FAULT == "killed":
        return lambda: os.kill(os.getpid(), signal.SIGKILL)
    elif FAULT == "stuck file system":
        point = os.path.join(DIRECTORY, "data")
        unanswered(point)
        return lambda: open(os.path.join(point, "batch-7"), "rb").read()
    elif FAULT == "interpreter lock":
        threading.Thread(target=hog, daemon=True).start()
    elif FAULT == "stopped":
        return lambda: os.kill(os.getpid(), signal.SIGSTOP)
    elif FAULT == "neighbour":
        one = min(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {one})
        for _ in range(3):
            detached(["sh", "-c", "while :; do :; done"])  # on the same CPU
        return lambda: [work() for _ in range(4)]
    elif FAULT == "control group":
        limit("cpu", cpu__cfs_period_us="100000", cpu__cfs_quota_us="10000", cpu__max="10000 100000")
        return lambda: [work() for _ in range(4)]
    elif FAULT == "memory from disk":
        large = thrash()
        return lambda: sum(large[i] for i in range(0, len(large), 4096))
    elif FAULT == "full disk":
        return fill
    elif FAULT == "deadlock":
        return deadlock
    elif FAULT == "debugger":
        sys.stdin = os.fdopen(os.pipe()[0])
        return breakpoint
    elif FAULT == "exception":
        return lambda: {}["no such layer"]
    elif FAULT == "out of memory":
        time.sleep(3)  # the daemon looks once a second in which group a rank is
        return lambda: bytearray(os.urandom(1 << 20) * 256)
    elif FAULT == "slow network":
        shape("tbf", "rate", "20mbit", "burst", "64k", "latency", "200ms")
    elif FAULT == "broken cable":
        shape("tbf", "rate", "20mbit", "burst", "3k", "limit", "6k")  # what does not fit is dropped
    return lambda: None


def main():
    if FAULT == "out of memory" and os.environ["HOROVOD_RANK"] == RANK:
        limit("memory", memory__limit_in_bytes=str(128 << 20), memory__max=str(128 << 20), memory__swap__max="0")
    if FAULT == "other clocks" and os.environ["HOROVOD_RANK"] == RANK and "LATER" not in os.environ:
        # A time namespace begins with the next process.
        other = ["unshare", "--time", "--monotonic", "0", "--boottime", "0", "--fork", "--kill-child"]
        os.execvpe(other[0], [*other, sys.executable, *sys.argv], {**os.environ, "LATER": "1"})
    hvd.init()
    faulty = hvd.rank() == int(RANK)
    if faulty:
        subprocess.run(["tc", "qdisc", "del", "dev", device(), "root"], stderr=subprocess.DEVNULL, check=False)
    network = FAULT in ("slow network", "broken cable")
    gradients = np.ones(1 << 20 if network else 4, dtype=np.float32)
    then = None
    for step in gorun.loading(loader):
        planted = step >= PLANTED_AT and faulty
        if step == PLANTED_AT and faulty:
            print("planted", os.getpid(), flush=True)
            then = plant()
        if then is not None:
            then()
        if FAULT == "fewer batches" and planted:
            break
        if FAULT == "fewer batches later" and planted:
            barrier("epoch")
        if not (FAULT == "missing call" and planted):
            barrier("encoder")
        if FAULT == "wrong order" and planted:
            barrier("head")
            barrier("decoder")
        else:
            barrier("decoder")
            barrier("head")
        n = 2 if FAULT == "mismatch" and planted else 1
        hvd.allreduce(gradients[: len(gradients) // n], name="gradients")
        if FAULT in ("fewer batches later", "no validation") and step % EPOCH == EPOCH - 1 and not planted:
            barrier("epoch")
        gorun.step()
    barrier("end of epoch")


main()
