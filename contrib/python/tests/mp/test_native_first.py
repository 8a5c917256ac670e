"""Run by every rank of a real job: code in C has joined first, and Python shares its session."""

import numpy as np

import gorun.numpy as hvd
from gorun import native

library = native.library()
assert library is not None, native.reason()
assert library.gorun_init() == 0, native.error()
for _ in range(2):
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (library.gorun_rank(), library.gorun_size())
    for _ in range(5):
        assert (hvd.allreduce(np.ones(3), op=hvd.Sum, name="x") == hvd.size()).all()
        assert library.gorun_barrier(b"b") == 0, native.error()
    assert native.attach() is library
    hvd.shutdown()  # which ends Python's part alone
    assert library.gorun_joined() and library.gorun_barrier(b"b") == 0, native.error()
hvd.init()
assert library.gorun_finalize() == 0, native.error()
try:
    hvd.allreduce(np.ones(3), name="late")
except hvd.HorovodInternalError:
    print("ok")
else:
    raise AssertionError("the rank has left, and Python's part goes on")
