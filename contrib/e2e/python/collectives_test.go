package python

import (
	"fmt"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// everything is a program whose ranks compare operations with what they make of all ranks' parts by themselves:
// allreduces of all types by all reductions, and all other operations.
const everything = `
import itertools, sys
import numpy as np
import gorun.numpy as hvd
from gorun import collectives

some = [0, 3, 4]  # a rank of each host
subset = hvd.ProcessSet(some)
hvd.init(process_sets=[subset])
rank, size = hvd.rank(), hvd.size()
done = 0

INTEGERS = [np.dtype(t) for t in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")]
FLOATS = [np.dtype(t) for t in ("f2", "f4", "f8")]
COMPLEX = [np.dtype(t) for t in ("c8", "c16")]
TYPES = INTEGERS + FLOATS + COMPLEX + [np.dtype("?")]
BITS = [(hvd.BitAnd, np.bitwise_and), (hvd.BitOr, np.bitwise_or), (hvd.BitXor, np.bitwise_xor),
        (hvd.LogicalAnd, np.logical_and), (hvd.LogicalOr, np.logical_or), (hvd.LogicalXor, np.logical_xor)]
SUM, PRODUCT = (hvd.Sum, np.add), (hvd.Product, np.multiply)
ORDER = [(hvd.Min, np.minimum), (hvd.Max, np.maximum)]


def reductions(t):
    if t.kind == "b":
        return BITS
    if t.kind == "c":
        return [SUM, PRODUCT]
    if t.kind == "f":
        return [SUM, PRODUCT, (hvd.Average, np.add), *ORDER]
    return [SUM, PRODUCT, *ORDER, *BITS]


def part(r, t, *shape):
    """What a rank has: whole numbers, so few and small that every order of additions gives the same."""
    numbers = (np.arange(np.prod(shape, dtype=int)) * (2 * r + 3) + r) % 3
    if t.kind == "c":
        numbers = numbers + 1j * ((numbers + r) % 2)
    return numbers.astype(t).reshape(shape)


def reduced(t, op, fold, shape, ranks):
    parts = [part(r, t, *shape) for r in ranks]
    if op in (hvd.LogicalAnd, hvd.LogicalOr, hvd.LogicalXor):
        parts = [p.astype(bool) for p in parts]
    whole = parts[0]
    for p in parts[1:]:
        whole = fold(whole, p)
    return (whole / t.type(len(parts)) if op == hvd.Average else whole).astype(t)


def same(what, got, want):
    global done
    done += 1
    close = np.allclose(got, want, 1e-3) if want.dtype == "f2" else np.allclose(got, want, 1e-6)
    assert got.dtype == want.dtype and got.shape == want.shape and close, (what, got, want)


def later(what, handle, want, pick=lambda value: value):
    return lambda: same(what, pick(hvd.synchronize(handle)), want)


def allreduces(ranks, **where):
    checks = []
    for t in TYPES:
        for op, fold in reductions(t):
            for shape in ((1,), (701, 3)):
                handle = hvd.allreduce_async(part(rank, t, *shape), op=op, **where)
                checks.append(later(("allreduce", t, op, shape), handle, reduced(t, op, fold, shape, ranks)))
    for t, (op, fold) in itertools.product(FLOATS, [SUM, *ORDER]):
        handle = hvd.allreduce_async(part(rank, t, 300001), op=op, **where)
        checks.append(later(("large allreduce", t, op), handle, reduced(t, op, fold, (300001,), ranks)))
    return checks


def others(ranks, **where):
    checks = []
    n, me = len(ranks), ranks.index(rank)
    for t in TYPES:
        for scale in (1, 997):
            rows = [[scale * ((a + 2 * b) % 3) for b in range(n)] for a in range(n)]  # from a to b
            pieces = [np.split(part(r, t, sum(rows[a]), 2), np.cumsum(rows[a])[:-1]) for a, r in enumerate(ranks)]
            spare = np.concatenate([part(rank, t, sum(rows[me]), 2), np.ones((5, 2), t)])  # five rows are for nobody
            want = np.concatenate([p[me] for p in pieces])
            handle = hvd.alltoall_async(spare, rows[me], **where)
            checks.append(later(("alltoallv", t, scale), handle, want, lambda value: value[0]))
            handle = hvd.alltoall_async(spare, rows[me], **where)
            received = np.array([rows[a][me] for a in range(n)])
            checks.append(later(("rows", t, scale), handle, received, lambda value: np.array(value[1], dtype=int)))
            even = hvd.alltoall_async(part(rank, t, scale * n, 2), **where)
            want = np.concatenate([part(r, t, scale * n, 2)[scale * me : scale * (me + 1)] for r in ranks])
            checks.append(later(("alltoall", t, scale), even, want))
            count = [scale * (r % 3) for r in ranks]
            handle = hvd.allgather_async(part(rank, t, count[me], 2), **where)
            want = np.concatenate([part(r, t, c, 2) for r, c in zip(ranks, count)])
            checks.append(later(("allgatherv", t, scale), handle, want))
            root = ranks[scale % n]
            handle = hvd.broadcast_async(part(rank, t, scale, 2), root, **where)
            checks.append(later(("broadcast", t, scale), handle, part(root, t, scale, 2)))
            for op, fold in [o for o in reductions(t) if o[0] in (hvd.Sum, hvd.Average)]:
                shape = (scale * n + 1, 2)  # one row is left over
                want = np.array_split(reduced(t, op, fold, shape, ranks), n)[me]
                handle = hvd.reducescatter_async(part(rank, t, *shape), op=op, **where)
                checks.append(later(("reducescatter", t, op, scale), handle, want))
                handle = hvd.reduce_async(part(rank, t, *shape), root, op=op, **where)
                if rank == root:
                    checks.append(later(("reduce", t, op, scale), handle, reduced(t, op, fold, shape, ranks)))
                else:
                    checks.append(lambda handle=handle: hvd.synchronize(handle))
    return checks


def groups(ranks, **where):
    n, me = len(ranks), ranks.index(rank)
    mixed = [np.dtype(t) for t in ("f4", "i8", "f4", "u1", "c8")]
    checks = []
    for shape in ((5,), (70001,)):
        got = hvd.grouped_allreduce([part(rank, t, *shape) for t in mixed], op=hvd.Sum, **where)
        for t, g in zip(mixed, got):
            checks.append(lambda t=t, g=g, s=shape: same(("group", t, s), g, reduced(t, hvd.Sum, np.add, s, ranks)))
    low = hvd.grouped_allreduce([part(rank, t, 77) for t in FLOATS], op=hvd.Min, **where)
    for t, g in zip(FLOATS, low):
        checks.append(lambda t=t, g=g: same(("minima", t), g, reduced(t, hvd.Min, np.minimum, (77,), ranks)))
    # As the binding of torch does it, which takes seconds to import.
    tensors = [part(rank, t, me + i, 3) for i, t in enumerate(mixed)]
    got = hvd.synchronize(collectives.allgather(hvd._Numpy(), tensors, **where))
    for i, (t, (g, _)) in enumerate(zip(mixed, got)):
        want = np.concatenate([part(r, t, a + i, 3) for a, r in enumerate(ranks)])
        checks.append(lambda t=t, g=g, want=want: same(("gathers", t), g, want))
    tensors = [part(rank, t, 1000 + i, 3) for i, t in enumerate(mixed)]
    got = hvd.synchronize(collectives.reducescatter(hvd._Numpy(), tensors, op=hvd.Sum, **where))
    for i, (t, g) in enumerate(zip(mixed, got)):
        want = np.array_split(reduced(t, hvd.Sum, np.add, (1000 + i, 3), ranks), n)[me]
        checks.append(lambda t=t, g=g, want=want: same(("scatters", t), g, want))
    return checks


for make in allreduces, others, groups:
    checks = make(list(range(size)))
    if rank in some:
        checks += make(some, process_set=subset)
    for check in checks:
        check()
print("rank", rank, "compared", done, "results", flush=True)
hvd.shutdown()
`

// Every operation between hosts, of all types and by all reductions, against the naive twin. TestAlgorithms sums by each algorithm.
func TestEveryOperation(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	r := c.Gorun("-np", "6", "-H", "host1:2,host2:2,host3:2", e2etest.Python, "-c", everything).Good(t)
	for rank := range 6 {
		_, after, found := strings.Cut(r.Stdout, fmt.Sprintf("rank %d compared ", rank))
		var n int
		if _, err := fmt.Sscan(after, &n); !found || err != nil || n < 400 {
			t.Errorf("rank %d compared %d results, want 400 or more\n%s", rank, n, r.Stdout)
		}
	}
}
