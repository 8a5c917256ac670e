"""A program of test_gpu_ipc: allreduces of ranks that share GPUs: gpu_ipc.py WHAT GPUS.

WHAT is the name of a function below; the local ranks share so many GPUs.
"""

import ctypes
import functools
import os
import random
import signal
import sys
import threading
import time

from gorun import basics, constants, elastic
from gorun.bindings import DTYPES
from gorun.gpu import calls, ipc, kernels, route, shares
from gorun.world import Operation

COUNTS = [1, 5, 20001]
WHAT, GPUS = sys.argv[1], int(sys.argv[2])


def settle():
    return route.route(basics.world(), basics.local_rank() * GPUS // basics.local_size()).settle()


def start_by_host(name, dtype, op, raw):
    """Start the same through the memory of the host; the handle's value is the result."""
    block = basics.world().alloc(len(raw))
    block.view[:] = raw
    operation = Operation(basics.world(), 0)
    count = len(raw) // calls.itemsize(dtype)
    operation.request(constants.ALLREDUCE, name, DTYPES[dtype], (count,), block, True, op=op)
    return operation.launch(lambda _: bytes(block.view))


def own_faults():
    """Let this rank have faults of its own; return the directory of their files."""
    os.environ["GPU_STANDIN"] += f"/{basics.rank()}"
    os.mkdir(os.environ["GPU_STANDIN"])
    return os.environ["GPU_STANDIN"]


def everyone(name):
    """Wait for all ranks."""
    basics.world().synchronize(start_by_host(name, "int32", constants.SUM, kernels.pack("int32", [1])))


class Memory:
    """Memory of the GPU."""

    def __init__(self, group, raw):
        self.group, self.nbytes = group, len(raw)
        self.address = group.device.alloc(len(raw))
        ctypes.memmove(self.address, raw, len(raw))

    def start(self, name, dtype, op, **more):
        count = self.nbytes // calls.itemsize(dtype)
        return self.group.allreduce(name, self.address, self.address, count, dtype, op, 0, **more)

    def bytes(self):
        return ctypes.string_at(self.address, self.nbytes)

    def free(self):
        self.group.device.free(self.address)


def values(dtype, count, rank):
    """Return elements of a rank, whose sums and products are exact."""
    draw = random.Random(rank)
    some = [draw.randrange(1, 4) for _ in range(min(count, 997))]
    return (kernels.pack(dtype, some) * (count // len(some) + 1))[: count * calls.itemsize(dtype)]


def reductions():
    """All reductions give what they give by the host, to the bit; test_gpu_kernels has the other types."""
    group = settle()
    assert isinstance(group, ipc.Ipc), group
    shares.CHUNK_BYTES = 16 << 10
    for count in COUNTS:
        under_way = []
        kinds = [(dtype, op) for dtype, op in kernels.KINDS if dtype in ("int32", "float32", "bfloat16")]
        random.Random(basics.rank()).shuffle(kinds)  # each rank has an order of its own
        for dtype, op in kinds:
            raw = values(dtype, count, basics.rank())
            memory = Memory(group, raw)
            work = memory.start(f"{dtype}.{op}", dtype, op)
            under_way.append((dtype, op, work, memory, start_by_host(f"h.{dtype}.{op}", dtype, op, raw)))
        for dtype, op, work, memory, handle in under_way:
            assert work.wait(), (dtype, op)
            assert memory.bytes() == basics.world().synchronize(handle), (dtype, op, count)
            memory.free()
    print(f"rank {basics.rank()}: all equal", flush=True)


def faults():
    """Where a rank cannot take part, all leave an operation to the host."""
    rank, own = basics.rank(), own_faults()
    group = settle()

    def once(name, count, fault="", text="", op=constants.SUM):
        raw = kernels.pack("int32", [rank + 1]) * count
        memory = Memory(group, raw)
        if fault and rank == 1:
            with open(os.path.join(own, fault), "w") as file:
                file.write(text)
        instead = functools.partial(start_by_host, f"{name}.host", "int32", op, raw)
        work = memory.start(name, "int32", op, by_host=instead)
        here = work.wait()
        result = memory.bytes() if here else basics.world().synchronize(work.handle)
        assert here or memory.bytes() == raw, "it was written all the same"
        sums = basics.size() * (basics.size() + 1) // 2 if op == constants.SUM else basics.size()
        assert result == kernels.pack("int32", [sums]) * count, (name, result[:8])
        if fault and rank == 1:
            os.unlink(os.path.join(own, fault))
        return here

    found = [once("memory", 1 << 20, "nomemory", "3000000"), once("again", 1 << 20)]
    found += [once("kernel", 1, "noptx", op=constants.MAX), once("open", 1 << 19, "noopen"), once("then", 1)]
    print(f"rank {rank}: by ipc {found}", flush=True)


def elsewhere():
    """While another thread of the script captures a stream, nothing is done that could end that."""
    capturing = os.path.join(own_faults(), "elsewhere")
    with open(capturing, "w"):
        group = settle()
    os.unlink(capturing)
    memory = Memory(group, kernels.pack("int32", [basics.rank() + 1]))
    with open(capturing, "w"):
        assert memory.start("x", "int32", constants.SUM).wait(), "left to the host"
    os.unlink(capturing)
    assert memory.bytes() == kernels.pack("int32", [3]), memory.bytes()
    print(f"rank {basics.rank()}: fine", flush=True)


def held():
    """Where a rank leaves, no wait of it ends before the stream is done with the memory."""
    hold, released = os.path.join(own_faults(), "hold"), []

    def release():
        time.sleep(2 * calls.CLOSE_SECONDS)
        released.append(True)
        os.unlink(hold)

    group = settle()
    memory = Memory(group, kernels.pack("float32", [1]) * 5000)
    memory.start("before", "float32", constants.SUM).wait()
    everyone("before")
    with open(hold, "w"):
        work = memory.start("x", "float32", constants.SUM)
    while not any(task.awaited for task in group._tasks):
        time.sleep(0.001)
    everyone("held")
    for function in (release, group.close):
        threading.Thread(target=function).start()
    try:
        work.wait()
    except elastic.HorovodInternalError as error:
        print(f"{'after' if released else 'before'} the stream: {error}", flush=True)


def losses():
    """In each world but the last the last rank dies, in one step of an operation after the other."""
    points = ["pieces", "reduced", "done"]

    @elastic.run
    def train(state):
        group = settle()
        while state.step < len(points) + 1:
            point = points[state.step] if state.step < len(points) else ""
            died = os.path.join(os.environ["GPU_STANDIN"], point + "died")
            if point and basics.rank() == basics.size() - 1:
                die_at(group, point, died)
            memory = Memory(group, kernels.pack("float32", [1]) * 5000)
            try:
                assert memory.start(f"x{state.step}", "float32", constants.SUM).wait(), "left to the host"
                # One that dies after it has read the result has done its part: the next one fails.
                while point:
                    several = [memory.start(f"y{i}.{state.step}", "float32", constants.SUM) for i in range(4)]
                    for work in several:
                        work.wait()
            except elastic.HorovodInternalError:
                if os.path.exists(died):
                    with open(died) as file:
                        print(f"lost at {point}: {time.time() - float(file.read()):.3f} s", flush=True)
                state.step += 1
                state.save()
                raise
            assert memory.bytes() == kernels.pack("float32", [basics.size()]) * 5000
            state.step += 1
        own, until = ipc.staging(group.device.ordinal), time.monotonic() + 5
        while own.taken and time.monotonic() < until:  # the others have to be done with the last piece
            time.sleep(0.001)
        print(f"done: rank {basics.rank()} of {basics.size()}, in use {own.taken}", flush=True)

    train(elastic.ObjectState(step=0))


def die_at(group, point, died):
    """Have this rank die when it begins a step of its next operation."""

    def die():
        with open(died + ".new", "w") as file:
            file.write(str(time.time()))
        os.rename(died + ".new", died)
        os.kill(os.getpid(), signal.SIGKILL)

    start = group._start_sum
    if point == "pieces":
        group._pieces = lambda *given: die()
    else:
        group._start_sum = lambda name, *more: die() if name.endswith(point) else start(name, *more)


if __name__ == "__main__":
    basics.init()
    globals()[WHAT]()
