"""Run by every rank of a real job: Python and libgorun are one rank. Worlds begin anew."""

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np

import gorun.elastic
import gorun.numpy as hvd
from gorun import native
from gorun.objects import broadcast_object

FLOAT32, SUM = 11, 1
ROUNDS = 20
THREADS = 4

CHILD = """
from gorun import native
library = native.library()
assert library is not None, native.reason()
assert library.gorun_init() != 0
print(native.error())
"""


def c_sum(library, name, values):
    """Return the sum over the ranks, by the library, in a thread of its own or of Python."""
    x = np.array(values, np.float32)
    place = x.ctypes.data_as(ctypes.c_void_p)
    code = library.gorun_allreduce(name.encode(), place, place, ctypes.c_int64(x.size), FLOAT32, SUM)
    assert code == 0, native.error()
    return x


def mix(library, life):
    """Do operations of both, one after the other, at once, and with names of either in flight."""
    rank, size = hvd.rank(), hvd.size()
    total = size * (size + 1) / 2
    for number in range(ROUNDS):
        n = (3, 5000, 100_000)[number % 3]
        x = np.full(n, rank + 1.0, np.float32)
        begun = hvd.allreduce_async(x, op=hvd.Sum, name=f"python {number % 3}")
        assert (c_sum(library, f"c {number % 3}", [rank + 1.0] * n) == total).all()
        assert (hvd.synchronize(begun) == total).all()
        # A name goes from one to the other and back, on all ranks.
        assert (hvd.allreduce(np.ones(4, np.float32), op=hvd.Sum, name="both") == size).all()
        assert (c_sum(library, "allreduce.both", [1.0] * 4) == size).all()
    wrong = []

    def work(thread):
        try:
            for _ in range(ROUNDS):
                assert (c_sum(library, f"thread {thread}", [1.0] * 50) == size).all()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for number in range(ROUNDS):
        assert hvd.allreduce(float(rank), op=hvd.Max, name=f"beside {number}") == size - 1
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    print(f"life {life}: rank {rank} of {size}")


def twice(library):
    """A name that is in flight in one is refused in the other."""
    if hvd.size() == 1:
        return
    if hvd.rank() == 0:
        begun = hvd.allreduce_async(np.ones(3, np.float32), op=hvd.Sum, name="twice")
        hvd.allreduce(1.0, name="sent")  # so the daemon has it
        x = np.ones(3, np.float32)
        place = x.ctypes.data_as(ctypes.c_void_p)
        assert library.gorun_allreduce(b"allreduce.twice", place, place, ctypes.c_int64(3), FLOAT32, SUM) != 0
        assert "twice" in native.error(), native.error()
        hvd.allreduce(1.0, name="refused")
        assert (hvd.synchronize(begun) == hvd.size()).all()
    else:
        hvd.allreduce(1.0, name="sent")
        hvd.allreduce(1.0, name="refused")
        assert (hvd.allreduce(np.ones(3, np.float32), op=hvd.Sum, name="twice") == hvd.size()).all()


hvd.init()
library = native.attach()
assert library is native.library() and library is native.attach(), native.reason()
assert (library.gorun_rank(), library.gorun_size()) == (hvd.rank(), hvd.size())
mix(library, 1)
twice(library)

# Another process is not this rank, nor is a forked one.
environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
ended = subprocess.run([sys.executable, "-c", CHILD], env=environ, capture_output=True, text=True, check=True)
assert "gone" in ended.stdout or "rank" in ended.stdout, ended.stdout
child = os.fork()
if child == 0:
    os._exit(0 if library.gorun_barrier(b"child") != 0 and "forked" in native.error() else 1)
assert os.waitpid(child, 0)[1] == 0
mix(library, 2)


def lonely():
    """Wait in the library for what nobody else begins; the end of the world ends it."""
    if library.gorun_barrier(f"only rank {library.gorun_rank()}".encode()) == 0:
        lonely.ended_well = True


lonely.ended_well = False


waiting = []


@gorun.elastic.run
def train(state):
    """Begin anew: the library's session ends with its world, and attach() joins the next one."""
    native.attach()
    state.lives += 1
    state.commit()
    mix(library, 2 + state.lives)
    if state.lives < 3:
        # A thread that comes late finds no session, which is an error too.
        waiting.append(threading.Thread(target=lonely))
        waiting[-1].start()
        raise hvd.HorovodInternalError("all failed")
    return state.lives


hvd.shutdown()
assert not library.gorun_joined()
hvd.init()
assert train(gorun.elastic.ObjectState(broadcast_object, hvd.rank, lives=0)) == 3
for thread in waiting:
    thread.join()
assert hvd.size() == 1 or not lonely.ended_well  # with one rank it ends well, unless it came too late
hvd.shutdown()
print("ok")
