"""What real jobs do not show of the collectives for torch: memory of any kind, and what a failure leaves.

mp/test_parity.py has the rules of Horovod.
"""

import unittest

from tests_path import need_torch

torch = need_torch()

from fake import run_ranks  # noqa: E402

import gorun.torch as hvd  # noqa: E402
from gorun import basics, constants, errors  # noqa: E402

TYPES = [getattr(torch, name) for name in "uint8 int8 int16 int32 int64 float16 float32 float64".split()]


def ranked(rank, *shape, dtype=torch.float32):
    """A tensor that differs by rank and element, small enough to be exact in any type."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 7) * (rank + 1)).reshape(shape).to(dtype)


class AllreduceTest(unittest.TestCase):
    def each(self, function):
        for size in 1, 2, 4:
            with self.subTest(size=size):
                run_ranks(size, lambda rank, size=size: function(rank, size))

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
                ranked(rank, *dims).to(dtype) for dtype in (*TYPES, torch.complex64)
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

class ErrorTest(unittest.TestCase):
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
