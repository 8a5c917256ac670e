"""Where a bound rank, its memory and its daemon's threads are, as the kernel of a machine with NUMA nodes says."""

import os
import re

import gorun.numpy as hvd
import numpy as np


def allowed(path: str) -> str:
    """Return the CPUs of a thread."""
    with open(path) as status:
        return dict(line.split(":", 1) for line in status)["Cpus_allowed_list"].strip()


hvd.init()
# More than the small pieces that are put together with others, so that streams of both networks have work.
for _ in range(8):
    hvd.allreduce(np.full(1 << 20, hvd.rank(), np.float32), name="large")
memory = np.ones(8 << 20, np.uint8)
pages = {}
policy = "?"  # of the middle: numpy asks for huge pages, and so the ends are mappings of their own
with open("/proc/self/numa_maps") as maps:
    for line in maps:
        start, policy_here, *facts = line.split()
        if int(start, 16) <= memory.ctypes.data + memory.size // 2 and "anon=" in line:
            policy, found = policy_here, dict(re.findall(r"\bN(\d+)=(\d+)", line))
            pages = {int(node): int(count) for node, count in found.items()}
who = f"rank {hvd.rank()} local {hvd.local_rank()} cpus {allowed('/proc/self/status')}"
print(f"{who} policy {policy} pages {pages.get(0, 0)} {pages.get(1, 0)}", flush=True)
daemon = os.getppid()
threads = [allowed(f"/proc/{daemon}/task/{thread}/status") for thread in os.listdir(f"/proc/{daemon}/task")]
print(f"threads of rank {hvd.rank()}: {' '.join(sorted(threads))}", flush=True)
# Memory of streams' readers: mappings of their own with a policy of their own, each on the node of who touched it
# first.
with open(f"/proc/{daemon}/numa_maps") as maps:
    buffers = [re.findall(r"\bN(\d+)=", line) for line in maps if line.split()[1] == "local"]
print(f"buffers of rank {hvd.rank()}: {' '.join(sorted('+'.join(nodes) or '?' for nodes in buffers))}", flush=True)
hvd.barrier()
