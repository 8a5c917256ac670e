"""A program of test_gpu_jobs: the last rank joins before its first operation on a GPU, and the others go on.

Each of them starts two operations in an order of its own, and waits for the first of these first.
"""

import gpu_standins

from gorun import basics, collectives, constants
from gorun.gpu import route
from gorun.world import Operation


class Path:
    """What a framework's module asks to have: that a rank which joins helps to choose the path."""

    def due(self):
        return not route.begun(basics.world())

    def begin(self):
        return route.route(basics.world(), basics.local_rank()).settle


def by_host(name):
    """Start a sum of ones through the memory of the host."""
    block = basics.world().alloc(4)
    block.view[:] = (1).to_bytes(4, "little")
    operation = Operation(basics.world(), 0)
    operation.request(
        constants.ALLREDUCE, name, constants.INT32, (1,), block, True, op=constants.SUM
    )
    return operation.launch(lambda _: int.from_bytes(block.view[:4], "little"))


gpu_standins.use()
basics.init()
path = Path()
collectives.before_join(path)
rank, size = basics.rank(), basics.size()
if rank < size - 1:
    group = route.route(basics.world(), basics.local_rank()).settle()
    memory = group.device.alloc(4)
    works = []
    for name in ("ab", "ba")[rank % 2]:
        works.append(
            group.allreduce(
                name, memory, memory, 1, "int32", constants.SUM, 0, by_host=lambda name=name: by_host(name)
            )
        )
    for work in works:
        assert not work.wait(), "NCCL did it without a rank"
        assert basics.world().synchronize(work.handle) == size - 1
print(f"rank {rank}: joined last: {collectives.join()}", flush=True)
