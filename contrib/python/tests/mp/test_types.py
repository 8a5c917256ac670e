"""Run by every rank of a real job: types that Horovod does not have, and handles that never were."""

import torch

import gorun.torch as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
ranks = range(size)

# Types without arithmetic are moved, whatever their bits, as far as this torch has them.
for name in "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu complex32".split():
    dtype = getattr(torch, name, None)
    if dtype is None:
        continue
    bits = torch.int32 if name == "complex32" else torch.uint8
    want = [(torch.arange(6, dtype=bits).reshape(3, 2) * 43 + r).view(dtype) for r in ranks]
    mine = want[rank].clone()
    assert hvd.allgather(mine).dtype is dtype
    assert torch.equal(hvd.allgather(mine).view(bits), torch.cat([w.view(bits) for w in want])), dtype
    assert torch.equal(hvd.broadcast(mine, size - 1).view(bits), want[-1].view(bits)), dtype
    try:
        hvd.allreduce(mine)
    except ValueError:
        pass
    else:
        raise AssertionError(f"{dtype} was added up")
    hvd.broadcast_parameters({"moved": mine, "other": torch.ones(2)}, root_rank=0)
    assert torch.equal(mine.view(bits), want[0].view(bits)), dtype
for wrong in (-1, 10**6):
    try:
        hvd.synchronize(wrong)
    except ValueError:
        pass
    else:
        raise AssertionError("a handle that never was is accepted")

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
