"""Digests of what every operation gives, from 4 B to 16 MiB, to be compared bit by bit: python3 operations.py MOST"""

import hashlib
import sys
from typing import Any

import gorun.numpy as hvd
import numpy as np

REDUCTIONS = {
    "sum": hvd.Sum,
    "average": hvd.Average,
    "min": hvd.Min,
    "max": hvd.Max,
    "product": hvd.Product,
    "adasum": hvd.Adasum,
}
BITWISE = {"and": hvd.BitAnd, "or": hvd.BitOr, "xor": hvd.BitXor}

hvd.init()
rank, size = hvd.rank(), hvd.size()
digests: dict[str, Any] = {}


def take(operation: str, result: np.ndarray | None) -> None:
    """Have the bytes of a result count, if this rank gets one."""
    digest = digests.setdefault(operation, hashlib.sha256())
    if result is not None:
        digest.update(result.tobytes())


for n in (1, 3, 1000, 16_384, 70_000, 1 << 20, 1 << 22):  # float32
    if n > int(sys.argv[1]):
        continue
    x = np.random.default_rng([rank, n]).standard_normal(n, dtype=np.float32)
    bits = x.view(np.int32)
    root = n % size
    rows = [len(part) for part in np.array_split(x, size)]
    for name, op in REDUCTIONS.items():
        take(name, hvd.allreduce(x, op=op, name=f"{name} {n}"))
    for name, op in BITWISE.items():
        take(name, hvd.allreduce(bits, op=op, name=f"{name} {n}"))
    for result in hvd.grouped_allreduce([x, x[: n // 2], x.astype(np.float16)], op=hvd.Sum, name=f"group {n}"):
        take("group", result)
    take("reduce", hvd.reduce(x, root, op=hvd.Sum, name=f"reduce {n}"))
    take("reducescatter", hvd.reducescatter(x, op=hvd.Sum, name=f"reducescatter {n}"))
    take("allgather", hvd.allgather(x[: n - rank], name=f"allgather {n}"))
    take("broadcast", hvd.broadcast(x, root, name=f"broadcast {n}"))
    take("alltoall", hvd.alltoall(x, rows, name=f"alltoall {n}")[0])
    take("gather", hvd.gather(x, root, name=f"gather {n}"))
    take("scatter", hvd.scatter(x, root, rows, name=f"scatter {n}"))
    sent = hvd.send_async(x, (rank + 1) % size, name=f"pass {n}")
    take("pass", hvd.recv(np.empty_like(x), (rank - 1) % size, name=f"pass {n}"))
    hvd.synchronize(sent)
    hvd.barrier()

for name, digest in digests.items():
    print(f"digest {rank} {name} {digest.hexdigest()}", flush=True)
