"""Run by every rank of a real job: init and shutdown again and again, children, and the timeline."""

import json
import multiprocessing
import os
import signal
import tempfile
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import gorun.torch as hvd

torch.set_num_threads(1)


def refused(error, function, *args):
    try:
        function(*args)
    except error:
        return True
    raise AssertionError(f"{function} was accepted")


def child(forked):
    """A child of a rank has no part in the job, whatever it tries."""
    assert not hvd.is_initialized()
    refused(ValueError, hvd.rank)
    if not forked:  # a fork has the parent's threads' locks, and is not expected to connect
        refused(ValueError, hvd.init)


def record_and_hang(path):
    """Record operations in a process that will be killed; alone, as a job of its own."""
    for name in [name for name in os.environ if name.startswith("GORUN_")]:
        del os.environ[name]
    os.environ["HOROVOD_TIMELINE"] = path
    hvd.init()
    while True:
        hvd.allreduce(torch.ones(100), name="again")


def main():
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # inside the process, before init
    places = set()
    for turn in range(20):
        hvd.init()
        places.add((hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_rank()))
        total = hvd.allreduce(torch.tensor([turn + hvd.rank()]), op=hvd.Sum, name="x").item()
        assert total == sum(turn + rank for rank in range(hvd.size())), turn
        if turn % 2:
            left = hvd.allreduce_async(torch.ones(3), name="never waited for")
        hvd.shutdown()
        assert not hvd.is_initialized()
        refused(ValueError, hvd.rank)
        if turn % 2:
            refused((ValueError, hvd.HorovodInternalError), hvd.synchronize, left)
    assert len(places) == 1, places

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    # poll() is False right after submission, in a world of one as well.
    handle = hvd.allreduce_async(torch.ones(4), name="polled")
    assert not hvd.poll(handle)
    while not hvd.poll(handle):
        time.sleep(0.001)
    assert hvd.synchronize(handle).tolist() == [1.0] * 4

    # Children come and go in the middle of an operation.
    under_way = hvd.allreduce_async(torch.full((1 << 18,), rank + 1.0), name="under way", op=hvd.Sum)
    for method in ("fork", "spawn", "forkserver"):  # the last is what Python 3.14 does by itself
        process = multiprocessing.get_context(method).Process(target=child, args=(method == "fork",))
        process.start()
        process.join(240)
        assert process.exitcode == 0, (method, process.exitcode)
    data = TensorDataset(torch.arange(8.0))
    for context in ("fork",):
        loader = DataLoader(data, 2, num_workers=2, multiprocessing_context=context)
        batches = [hvd.allreduce(batch, op=hvd.Sum, name="batch") for (batch,) in loader]
        assert torch.equal(torch.cat(batches), torch.arange(8.0) * size)
    assert hvd.synchronize(under_way)[0] == size * (size + 1) / 2

    # The timeline, switched on and off.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.json")
        hvd.start_timeline(path, mark_cycles=True)
        for _ in range(5):
            hvd.allreduce(torch.ones(10), name="test_allreduce")
            hvd.allgather(torch.ones(rank + 1, 2), name="rows")
        hvd.stop_timeline()
        hvd.allreduce(torch.ones(10), name="afterwards")
        mine = path if rank == 0 else path.replace(".json", f".rank{rank}.json")
        with open(mine) as file:
            text = file.read()
        events = json.loads(text)
        for name in ("allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", "ALLGATHER", "CYCLE_START"):
            assert name in text, name
        assert "afterwards" not in text
        begun = [event for event in events if event["name"] == "ALLREDUCE" and event["ph"] == "B"]
        assert len(begun) == 5, events

        killed = os.path.join(folder, "killed.json")
        process = multiprocessing.get_context("spawn").Process(target=record_and_hang, args=(killed,))
        process.start()
        deadline = time.monotonic() + 240
        while not os.path.exists(killed) or os.path.getsize(killed) < 20_000:
            assert time.monotonic() < deadline, "nothing is recorded"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with open(killed) as file:
            assert len(json.load(file)) > 100

    hvd.barrier()
    hvd.shutdown()
    print(f"rank {rank} of {size}: ok")


if __name__ == "__main__":
    main()
