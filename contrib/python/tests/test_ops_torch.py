"""The collectives for torch, at several sizes, against what torch computes on its own."""

import unittest

from tests_path import need_torch

torch = need_torch()

from fake import run_ranks  # noqa: E402

import gorun.torch as hvd  # noqa: E402
from gorun import basics, constants, errors  # noqa: E402

SIZES = (1, 2, 4)
REDUCIBLE = (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
MOVABLE = (torch.uint8, torch.int8, torch.int16, *REDUCIBLE, torch.bool)


def ranked(rank, *shape, dtype=torch.float32):
    """A tensor that differs by rank and element, small enough to be exact in any type."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 7) * (rank + 1)).reshape(shape).to(dtype)


class AllreduceTest(unittest.TestCase):
    def each(self, function, sizes=SIZES):
        for size in sizes:
            with self.subTest(size=size):
                run_ranks(size, lambda rank, size=size: function(rank, size))

    def test_sum_and_average_of_every_type(self):
        def body(rank, size):
            for dtype in REDUCIBLE:
                for dims in ((), (3,), (5, 4), (2, 3, 4)):
                    mine = ranked(rank, *dims, dtype=dtype)
                    total = sum(ranked(r, *dims, dtype=dtype) for r in range(size))
                    got = hvd.allreduce(mine, average=False)
                    assert got.dtype == dtype and got.shape == mine.shape
                    assert torch.equal(got, total), (dtype, dims, got, total)
                    if dtype.is_floating_point:
                        assert torch.allclose(hvd.allreduce(mine), total / size)
                    assert torch.equal(mine, ranked(rank, *dims, dtype=dtype)), "the input changed"

        self.each(body)

    def test_min_max_product(self):
        def body(rank, size):
            mine = torch.tensor([rank + 1.0, -rank, 2.0])
            every = torch.stack([torch.tensor([r + 1.0, -r, 2.0]) for r in range(size)])
            assert torch.equal(hvd.allreduce(mine, op=hvd.Min), every.min(0).values)
            assert torch.equal(hvd.allreduce(mine, op=hvd.Max), every.max(0).values)
            assert torch.equal(hvd.allreduce(mine, op=hvd.Product), every.prod(0))

        self.each(body)

    def test_scale_factors(self):
        def body(rank, size):
            mine = ranked(rank, 9)
            total = sum(ranked(r, 9) for r in range(size))
            got = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
            assert torch.allclose(got, 2 * total)

        self.each(body)

    def test_in_place_writes_the_argument_and_returns_it(self):
        def body(rank, size):
            tensor = ranked(rank, 4, 3)
            assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
            assert torch.equal(tensor, sum(ranked(r, 4, 3) for r in range(size)))

        self.each(body)

    def test_in_place_is_no_change_for_autograd(self):
        """As with Horovod: what backward needs may be reduced, and so may a view from autograd."""

        def body(rank, size):
            def saved(of, *tensors):
                weight = torch.ones(3, requires_grad=True)
                loss = sum((weight * tensor).sum() for tensor in tensors)
                of()
                loss.backward()
                assert all(tensor._version == 0 for tensor in tensors)

            for shape in ((3,), (30000, 3), (3, 3)):
                a, b = ranked(rank, *shape), ranked(rank, *shape).t().contiguous().t()
                for _ in range(2):  # the second time in a slot, where there are slots
                    saved(lambda a=a: hvd.allreduce_(a, name="a"), a)
                    saved(lambda a=a: hvd.synchronize(hvd.allreduce_async_(a, name="b")), a)
                if len(shape) == 2 and shape[0] == 3:
                    saved(lambda b=b: hvd.allreduce_(b), b)
                    saved(lambda a=a, b=b: hvd.grouped_allreduce_([a, b]), a, b)
                saved(lambda a=a: hvd.broadcast_(a, size - 1), a)
            halves = (2 * torch.ones(2, 4, requires_grad=True)).unbind()
            hvd.allreduce_(halves[0], op=hvd.Sum)
            assert halves[0].tolist() == [2.0 * size] * 4

        self.each(body)

    def test_asynchronous_in_any_order_and_by_name(self):
        def body(rank, size):
            order = list(range(20))
            if rank % 2:
                order.reverse()
            handles = {i: hvd.allreduce_async(torch.full((i + 1,), float(i)), name=str(i)) for i in order}
            for i, handle in handles.items():
                got = hvd.synchronize(handle)
                assert torch.equal(got, torch.full((i + 1,), float(i)))
                assert hvd.synchronize(handle) is None  # as in Horovod

        self.each(body)

    def test_non_contiguous_and_zero_size(self):
        def body(rank, size):
            mine = ranked(rank, 6, 4).t()[::2]
            want = sum(ranked(r, 6, 4).t()[::2] for r in range(size))
            assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), want)
            into = torch.zeros(4, 6).t()
            into.copy_(ranked(rank, 6, 4))
            hvd.allreduce_(into, op=hvd.Sum)
            assert torch.equal(into, sum(ranked(r, 6, 4) for r in range(size)))
            assert hvd.allreduce(torch.zeros(0, 3)).shape == (0, 3)
            assert hvd.allgather(torch.zeros(0, 3)).shape == (0, 3)
            assert hvd.broadcast(torch.zeros(0), 0).shape == (0,)

        self.each(body)

    def test_grouped_keeps_order_types_and_places(self):
        def body(rank, size):
            tensors = [ranked(rank, 3), ranked(rank, 2, 2, dtype=torch.float64), ranked(rank, 5),
                       ranked(rank, 1, dtype=torch.int64)]  # fmt: skip
            want = [sum(t) for t in zip(*(
                [ranked(r, 3), ranked(r, 2, 2, dtype=torch.float64), ranked(r, 5),
                 ranked(r, 1, dtype=torch.int64)] for r in range(size)))]  # fmt: skip
            got = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="g")
            for g, w in zip(got, want):
                assert g.dtype == w.dtype and torch.equal(g, w)
            back = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
            assert all(b is t for b, t in zip(back, tensors))
            assert all(torch.equal(t, w) for t, w in zip(tensors, want))

        self.each(body)

    def test_grouped_of_any_memory(self):
        """Groups are moved as plain memory where tensors are that, and must come out alike where not."""

        def body(rank, size):
            def make(most=20_000):
                negated = torch.complex(torch.zeros(3), ranked(rank, 3)).conj().imag
                assert negated.is_neg()
                return [
                    ranked(rank, 3),
                    ranked(rank, 4, 6).t(),
                    ranked(rank, 8)[::2],
                    torch.tensor(rank + 1.0),
                    torch.zeros(0, 2),
                    negated,
                    ranked(rank, 1).expand(5),
                    ranked(rank, most),
                    torch.nn.Parameter(ranked(rank, 2, 2)),
                    ranked(rank, 4, 6)[:, 1:3],
                ]

            for grad in (torch.enable_grad, torch.no_grad):
                for most in (20_000, 20):  # tensors that are small on average take another way
                    want = [tensor.detach() / (rank + 1) * size * (size + 1) / 2 for tensor in make(most)]
                    with grad():
                        for got, right in zip(hvd.grouped_allreduce(make(most), op=hvd.Sum), want):
                            assert torch.equal(got, right), (got, right)
                        tensors = make(most)
                        del tensors[6]  # not to be written to
                        back = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
                        for got, tensor, right in zip(back, tensors, want[:6] + want[7:]):
                            assert got is tensor and torch.equal(got, right), (got, right)

        self.each(body)

    def test_grouped_of_small_tensors_of_any_type(self):
        def body(rank, size):
            mine = [
                ranked(rank, *dims).to(dtype) for dtype in (*MOVABLE[:-1], torch.complex64)
                for dims in ((), (1,), (0, 3), (2, 3), (7,))
            ]  # fmt: skip
            mine.append(torch.complex(ranked(rank, 3), ranked(rank, 3)).conj())
            assert mine[-1].is_conj()
            want = [tensor / (rank + 1) * (size * (size + 1) // 2) for tensor in mine]
            for tensor, got, right in zip(mine, hvd.grouped_allreduce(mine, op=hvd.Sum), want):
                assert got.dtype == tensor.dtype and torch.equal(got, right.to(got.dtype)), (tensor, got)
            back = hvd.grouped_allreduce_(mine, op=hvd.Sum)
            for tensor, got, right in zip(mine, back, want):
                assert got is tensor and torch.equal(got, right.to(got.dtype)), (tensor, right)

        self.each(body)

    def test_grouped_gives_tensors_of_their_own(self):
        def body(rank, size):
            tensors = [ranked(rank, 3), ranked(rank, 2, 4).t(), torch.nn.Parameter(ranked(rank, 2))]
            for inputs in (tensors[:2], tensors):  # without a gradient, and with one
                outputs = hvd.grouped_allreduce(inputs, op=hvd.Sum)
                assert all(got.is_contiguous() and got._base is None for got in outputs)
                assert all(got.requires_grad is (inputs is tensors) for got in outputs)
                with torch.no_grad():
                    before = [got.clone() for got in outputs]
                    outputs[0].zero_()
                    hvd.grouped_allreduce([torch.ones_like(t) for t in inputs], op=hvd.Sum)
                    assert all(torch.equal(*pair) for pair in zip(outputs[1:], before[1:]))

        self.each(body)

    def test_grouped_of_tensors_that_share_memory(self):
        def body(rank, size):
            for count in (6, 40_000):
                x, total = ranked(rank, count), sum(ranked(r, count) for r in range(size))
                every = hvd.grouped_allreduce([x, x[: count // 2 + 1], x[count // 2 :], x], op=hvd.Sum)
                for got, right in zip(every, (total, total[: count // 2 + 1], total[count // 2 :], total)):
                    assert torch.equal(got, right), (got, right)
                hvd.grouped_allreduce_([x, x[: count // 2 + 1], x[count // 2 :], x], op=hvd.Sum)
                assert torch.equal(x, total), (x, total)

        self.each(body)

    def test_grouped_refuses_sparse_tensors(self):
        def body(rank):
            for dense in (torch.ones(2), torch.ones(40_000)):
                tensors = [dense, torch.sparse_coo_tensor([[0]], [1.0], (2,))]
                for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
                    with self.assertRaises(RuntimeError):
                        call(tensors)
                self.assertEqual(basics.world().session.in_use(), (0, 0))
                assert torch.equal(dense, torch.ones(dense.shape))

        run_ranks(2, body)

    def test_grouped_into_tensors_that_became_others(self):
        def body(rank, size):
            tensors = [torch.ones(3), torch.ones(4)]
            handle = hvd.grouped_allreduce_async_(tensors, name="resized", op=hvd.Sum)
            tensors[0].resize_(1)
            with self.assertRaises(RuntimeError):
                hvd.synchronize(handle)
            assert tensors[0].tolist() == [1] and tensors[1].tolist() in ([1] * 4, [size] * 4)
            tensors = [torch.ones(3), torch.ones(4)]
            handle = hvd.grouped_allreduce_async_(tensors, name="halved", op=hvd.Sum)
            for tensor in tensors:
                tensor.data = tensor.data.half()
            with self.assertRaises(RuntimeError):
                hvd.synchronize(handle)
            assert tensors[0].tolist() == [1] * 3

        self.each(body)

    def test_grouped_in_another_order_is_refused(self):
        def body(rank, size):
            tensors = [torch.ones(2), torch.ones(3)]
            with self.assertRaises(hvd.HorovodInternalError):
                hvd.grouped_allreduce(tensors if rank else tensors[::-1], name="swapped")

        self.each(body, (2, 4))

    def test_compression(self):
        def body(rank, size):
            got = hvd.allreduce(ranked(rank, 8), compression=hvd.Compression.fp16, op=hvd.Sum)
            assert got.dtype == torch.float32
            assert torch.equal(got, sum(ranked(r, 8) for r in range(size)))

        self.each(body)

    def test_gradient(self):
        def body(rank, size):
            for op, factor in ((hvd.Average, 1.0), (hvd.Sum, float(size))):
                x = ranked(rank, 3, 2).requires_grad_()
                hvd.allreduce(x, op=op).backward(torch.ones(3, 2))
                assert torch.allclose(x.grad, torch.full((3, 2), factor))
            x, y = ranked(rank, 3).requires_grad_(), ranked(rank, 2).requires_grad_()
            a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
            (a.sum() + 2 * b.sum()).backward()
            assert torch.allclose(x.grad, torch.full((3,), float(size)))
            assert torch.allclose(y.grad, torch.full((2,), 2.0 * size))

        self.each(body)

    def test_sparse(self):
        def body(rank, size):
            mine = torch.sparse_coo_tensor([[rank, size]], [[1.0, 2.0], [3.0, 4.0]], (size + 1, 2))
            got = hvd.sparse_allreduce_async(mine, "s", hvd.Average)().to_dense()
            want = torch.tensor([[1.0 / size, 2.0 / size]] * size + [[3.0, 4.0]])
            assert torch.allclose(got, want), got

        self.each(body)


class MovingTest(unittest.TestCase):
    each = AllreduceTest.each

    def test_allgather_of_uneven_rows_and_every_type(self):
        def body(rank, size):
            for dtype in MOVABLE:
                got = hvd.allgather(ranked(rank, rank, 3, dtype=dtype))
                want = torch.cat([ranked(r, r, 3, dtype=dtype) for r in range(size)])
                assert got.dtype == dtype and torch.equal(got, want)
            with self.assertRaises((ValueError, IndexError)):
                hvd.allgather(torch.tensor(1.0))

        self.each(body)

    def test_allgather_gradient(self):
        def body(rank, size):
            x = torch.ones(rank + 1, 2, requires_grad=True)
            out = hvd.allgather(x)
            weights = torch.arange(out.shape[0], dtype=torch.float32).reshape(-1, 1).expand_as(out)
            (out * weights).sum().backward()
            start = sum(r + 1 for r in range(rank))
            want = torch.arange(start, start + rank + 1, dtype=torch.float32).reshape(-1, 1).expand(-1, 2)
            assert torch.allclose(x.grad, want), (x.grad, want)

        self.each(body)

    def test_grouped_allgather(self):
        def body(rank, size):
            a, b = hvd.grouped_allgather([ranked(rank, 2), ranked(rank, rank + 1, 2, dtype=torch.int64)])
            assert torch.equal(a, torch.cat([ranked(r, 2) for r in range(size)]))
            assert torch.equal(b, torch.cat([ranked(r, r + 1, 2, dtype=torch.int64) for r in range(size)]))

        self.each(body)

    def test_broadcast(self):
        def body(rank, size):
            for root in range(size):
                for dtype in MOVABLE:
                    mine = ranked(rank, 2, 5, dtype=dtype)
                    got = hvd.broadcast(mine, root)
                    assert got.dtype == dtype and torch.equal(got, ranked(root, 2, 5, dtype=dtype))
                    assert torch.equal(mine, ranked(rank, 2, 5, dtype=dtype))
                    assert hvd.broadcast_(mine, root, name=f"b{root}") is mine
                    assert torch.equal(mine, ranked(root, 2, 5, dtype=dtype))
            with self.assertRaises(ValueError):
                hvd.broadcast(torch.ones(1), size)

        self.each(body)

    def test_broadcast_gradient(self):
        def body(rank, size):
            x = ranked(rank, 4).requires_grad_()
            (hvd.broadcast(x, 0) * (rank + 1)).sum().backward()
            mean = sum(r + 1 for r in range(size)) / size
            assert torch.allclose(x.grad, torch.full((4,), mean if rank == 0 else 0.0))

        self.each(body)

    def test_alltoall(self):
        def body(rank, size):
            # rank r sends r+i+1 rows of value r to rank i
            splits = torch.tensor([rank + i + 1 for i in range(size)], dtype=torch.int32)
            x = torch.full((int(splits.sum()) + 2, 2), float(rank), requires_grad=True)  # two stay behind
            got, received = hvd.alltoall(x, splits)
            want = [r + rank + 1 for r in range(size)]
            assert received.dtype == torch.int32 and received.tolist() == want
            assert torch.equal(got, torch.cat([torch.full((n, 2), float(r)) for r, n in enumerate(want)]))
            (got * (rank + 1)).sum().backward()
            back = torch.cat([torch.full((int(n), 2), i + 1.0) for i, n in enumerate(splits)])
            assert torch.equal(x.grad[:-2], back) and not x.grad[-2:].any()
            even = hvd.alltoall(torch.arange(size) + 10 * rank)
            assert even.tolist() == [10 * r + rank for r in range(size)]
            for bad in (torch.ones(size, dtype=torch.int64), [1] * (size + 1), [9] * size, [-1] * size):
                with self.assertRaises(ValueError):
                    hvd.alltoall(torch.ones(size), bad)

        self.each(body)

    def test_reducescatter(self):
        def body(rank, size):
            rows = 2 * size + 1
            x = ranked(rank, rows, 3).requires_grad_()
            got = hvd.reducescatter(x, op=hvd.Sum)
            total = sum(ranked(r, rows, 3) for r in range(size))
            assert torch.equal(got, torch.tensor_split(total, size)[rank])
            got.sum().backward()
            assert torch.equal(x.grad, torch.full((rows, 3), float(size)))
            a, b = hvd.grouped_reducescatter([ranked(rank, size), ranked(rank, size, 2)], op=hvd.Average)
            assert torch.allclose(b * size, sum(ranked(r, size, 2) for r in range(size))[rank : rank + 1])
            for bad in ({"op": hvd.Max}, {}):
                with self.assertRaises(ValueError):
                    hvd.reducescatter(torch.ones(3) if bad else torch.tensor(1.0), **bad)

        self.each(body)

    def test_barrier(self):
        self.each(lambda rank, size: hvd.barrier())

    def test_process_sets(self):
        def body(rank, size):
            hvd.shutdown()
            even = hvd.ProcessSet(range(0, size, 2))
            hvd.init(process_sets=[even])
            assert even.included() == (rank % 2 == 0) and even.size() == 2
            if rank % 2 == 0:
                got = hvd.allreduce(torch.tensor([float(rank)]), name="x", op=hvd.Sum, process_set=even)
                assert got.item() == 2.0
                assert hvd.broadcast(torch.tensor([rank]), 2, process_set=even).item() == 2
                with self.assertRaises(ValueError):
                    hvd.broadcast(torch.tensor([rank]), 1, process_set=even)
            else:
                with self.assertRaises(ValueError):
                    hvd.allreduce(torch.ones(1), process_set=even)
            got = hvd.allreduce(torch.tensor([float(rank)]), name="x", op=hvd.Sum)
            assert got.item() == 6.0

        for _ in range(3):
            run_process_sets(body)


def run_process_sets(body):
    # Leaving and coming back ends a job for the ranks that did not, so all of them start outside.
    run_ranks(4, lambda rank: body(rank, 4), initialized=False)


class ErrorTest(unittest.TestCase):
    def test_before_init(self):
        with self.assertRaisesRegex(ValueError, "^Horovod has not been initialized; use hvd.init\\(\\).$"):
            hvd.rank()
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(1))

    def test_mismatches_are_raised_at_synchronize(self):
        cases = {
            "shape": lambda rank: hvd.allreduce_async(torch.ones(2 + rank)),
            "same size, other shape": lambda rank: hvd.allreduce_async(torch.ones(*((2, 3), (3, 2))[rank])),
            "type": lambda rank: hvd.allreduce_async(
                torch.ones(2, dtype=(torch.int32, torch.float32)[rank])
            ),
            "op": lambda rank: hvd.allreduce_async(torch.ones(2), op=(hvd.Sum, hvd.Max)[rank]),
            "root": lambda rank: hvd.broadcast_async(torch.ones(2), rank),
            "rows": lambda rank: hvd.allgather_async(torch.ones(2, 2 + rank)),
        }
        for what, start in cases.items():
            with self.subTest(what):

                def body(rank, start=start):
                    handle = start(rank)
                    with self.assertRaises(hvd.HorovodInternalError):
                        hvd.synchronize(handle)
                    assert hvd.allreduce(torch.ones(1)).item() == 1, "the world does not go on"

                run_ranks(2, body)

    def test_a_name_in_use_is_refused_until_the_operation_ends(self):
        def body(rank):
            if rank == 0:
                first = hvd.allreduce_async(torch.ones(3), name="n")
                with self.assertRaisesRegex(ValueError, "same name"):
                    hvd.allreduce_async(torch.ones(3), name="n")
                hvd.barrier()
                hvd.synchronize(first)
            else:
                hvd.barrier()
                hvd.allreduce(torch.ones(3), name="n")
            assert hvd.allreduce(torch.ones(1), name="n").item() == 1

        run_ranks(2, body)

    def test_a_group_that_is_refused_leaves_nothing_behind(self):
        x, other = torch.ones(2), torch.ones(2).double()
        odd = torch.quantize_per_tensor(x, 1.0, 0, torch.quint8)
        gather, reduce = hvd.grouped_allgather_async, hvd.grouped_allreduce_async
        groups = [
            (gather, [x, odd], "a type", ValueError),
            (hvd.grouped_reducescatter_async, [x, odd], "a type", ValueError),
            (reduce, [x, other, odd], "a type", ValueError),
            (reduce, [torch.ones((1,) * 33), other], "dimensions", errors.InvalidArgument),
            # The first of these names is just short enough.
            (reduce, [x, other], "x" * (constants.MAX_NAME - len("grouped_allreduce.")), ValueError),
            (gather, [x] * 10, "x" * (constants.MAX_NAME - len("allgather._1of10")), ValueError),
        ]

        def body(rank):
            session = basics.world().session
            for function, tensors, name, error in groups:
                for _ in range(2):
                    with self.assertRaises(error):
                        function(tensors, name=name)
                    self.assertEqual(session.in_use(), (0, 0), (function, name[:20]))
            hvd.barrier()
            if rank == 0:
                self.assertEqual({name for _, name in session.engine.log}, {"barrier.noname.0"})

        run_ranks(2, body)

    def test_what_a_failed_group_has_submitted_ends_unnoticed(self):
        def body(rank):
            session = basics.world().session

            def lost(name):
                if name.endswith("2of2"):
                    raise errors.Aborted("lost")

            session.before = lost
            for _ in range(3):  # the name is free again
                with self.assertRaisesRegex(hvd.HorovodInternalError, "lost"):
                    hvd.grouped_allgather([torch.ones(3), torch.ones(4)], name="g")
                hvd.barrier()
                hvd.allreduce(torch.ones(1))
                self.assertEqual(session.in_use(), (0, 0))

        run_ranks(2, body)

    def test_a_rank_that_left_fails_the_others(self):
        def body(rank):
            if rank:
                with self.assertRaises(hvd.HorovodInternalError):
                    hvd.allreduce(torch.ones(1))

        run_ranks(3, body)

    def test_arguments(self):
        def body(rank):
            with self.assertRaises(ValueError):
                hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
            with self.assertRaises(ValueError):
                hvd.allreduce(torch.quantize_per_tensor(torch.ones(1), 1.0, 0, torch.quint8))
            with self.assertRaises(ValueError):
                hvd.synchronize(12345)
            with self.assertRaises(ValueError):
                hvd.poll(12345)

        run_ranks(1, body)

    def test_init_and_shutdown_many_times(self):
        def body(rank):
            for _ in range(20):
                hvd.init()
                hvd.init()
                assert hvd.is_initialized() and hvd.size() == 1
                assert hvd.allreduce(torch.ones(2)).sum() == 2
                hvd.shutdown()
                hvd.shutdown()
                assert not hvd.is_initialized()

        run_ranks(1, body, initialized=False)


if __name__ == "__main__":
    unittest.main()
