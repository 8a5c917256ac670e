"""SyncBatchNorm, and training that goes on in another world."""

import io
import os
import unittest
from contextlib import redirect_stderr
from unittest import mock

from tests_path import need_torch

torch = need_torch()

from fake import run_ranks  # noqa: E402
from torch import nn  # noqa: E402

import gorun.torch as hvd  # noqa: E402
from gorun import basics  # noqa: E402
from gorun.elastic import HostUpdateResult, notification_manager  # noqa: E402
from gorun.exceptions import HorovodInternalError  # noqa: E402
from gorun.session import HostsChanged  # noqa: E402


class SyncBatchNormTest(unittest.TestCase):
    def test_is_batch_norm_of_all_batches(self):
        flat, image, volume = (nn.BatchNorm1d, ()), (nn.BatchNorm2d, (3, 2)), (nn.BatchNorm3d, (2, 1, 2))
        shapes = {"1d": flat, "2d": image, "3d": volume}
        for what, (plain, rest) in shapes.items():
            for momentum in (0.1, None):
                with self.subTest(what, momentum=momentum):

                    def body(rank, plain=plain, rest=rest, momentum=momentum):
                        generator = torch.Generator().manual_seed(5)
                        reference = plain(4, momentum=momentum).double()
                        module = hvd.SyncBatchNorm(4, momentum=momentum).double()
                        sizes = [2, 5, 0]  # a rank may have nothing
                        for step in range(3):
                            x = torch.randn(7, 4, *rest, generator=generator, dtype=torch.float64) + 3
                            weights = torch.randn(x.shape, generator=generator, dtype=torch.float64)
                            mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
                            whole, part = x.clone().requires_grad_(), x[mine].clone().requires_grad_()
                            want, got = reference(whole), module(part)
                            assert torch.allclose(got, want[mine]), step
                            (want * weights).sum().backward()
                            (got * weights[mine]).sum().backward()
                            assert torch.allclose(part.grad, whole.grad[mine])
                        assert torch.allclose(module.running_mean, reference.running_mean)
                        assert torch.allclose(module.running_var, reference.running_var)
                        for a, b in zip(module.parameters(), reference.parameters()):
                            assert torch.allclose(hvd.allreduce(a.grad, op=hvd.Sum), b.grad)
                        module.eval()
                        reference.eval()
                        assert torch.allclose(module(x), reference(x))

                    run_ranks(3, body)

    def test_without_weights_and_alone(self):
        def body(rank):
            module = hvd.SyncBatchNorm(3, affine=False, track_running_stats=False)
            x = torch.arange(12.0).reshape(4, 3).requires_grad_()
            want = nn.functional.batch_norm(x, None, None, training=True)
            assert torch.allclose(module(x), want, atol=1e-5)
            module(x).sum().backward()
            with self.assertRaises(ValueError):
                module(torch.ones(3))

        run_ranks(1, body)
        run_ranks(2, body)


class SamplerTest(unittest.TestCase):
    def test_deals_out_what_is_left(self):
        def body(rank):
            sampler = hvd.elastic.ElasticSampler(list(range(22)), seed=3)
            assert len(sampler) == 6
            before = hvd.allgather_object(list(sampler))
            assert {i for part in before for i in part} == set(range(22))
            sampler.record_batch(0, 2)
            done = {i for part in before for i in part[:2]}
            sampler.load_state_dict(sampler.state_dict())
            left = hvd.allgather_object(list(sampler))
            assert {i for part in left for i in part} == set(range(22)) - done
            assert len({len(part) for part in left}) == 1
            sampler.set_epoch(1)
            assert hvd.allgather_object(list(sampler)) != before
            sampler.record_batch(1000, 2)  # scripts count batches as they like, also over restarts
            assert sampler.processed_num == 2 * hvd.size()
            sampler.load_state_dict({"epoch": 1, "processed_num": 22})
            assert list(sampler) == [] and len(sampler) == 0

        run_ranks(4, body)


class StateTest(unittest.TestCase):
    def make(self, rank):
        net = nn.Linear(2, 1)
        with torch.no_grad():
            net.weight.fill_(rank)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (rank + 1), momentum=0.9)
        sampler = hvd.elastic.ElasticSampler(list(range(8)))
        return hvd.elastic.TorchState(net, optimizer, sampler=sampler, epoch=rank, log=[rank])

    def test_what_belongs_to_an_optimizer_stays_with_it(self):
        schedulers = torch.optim.lr_scheduler
        for make in (
            lambda optimizer: schedulers.StepLR(optimizer, step_size=2),
            lambda optimizer: schedulers.LambdaLR(optimizer, lambda steps: 1 / (1 + steps)),
            schedulers.ReduceLROnPlateau,
            lambda optimizer: torch.cuda.amp.GradScaler(),
        ):

            def body(rank, make=make):
                net = nn.Linear(2, 1)
                optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
                optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
                kept = make(optimizer)
                state = hvd.elastic.TorchState(model=net, optimizer=optimizer, kept=kept, step=0)
                before = kept.state_dict()
                told = kept.state_dict()
                told["last_epoch" if "last_epoch" in told else "scale"] = 7 + rank
                kept.load_state_dict(told)
                unscaled = getattr(kept, "_per_optimizer_states", {})  # of a scaler, amid a step
                unscaled[1] = {}
                state.restore()
                assert kept.state_dict() == before
                assert not getattr(kept, "_per_optimizer_states", {})
                kept.load_state_dict(told)
                state.sync()
                state.restore()
                assert 7 in kept.state_dict().values(), kept.state_dict()
                assert state.kept is kept and getattr(kept, "optimizer", optimizer) is optimizer

            with mock.patch.object(torch.cuda, "is_available", return_value=True):  # or a scaler does nothing
                run_ranks(2, body)

    def test_all_take_over_the_newest_commit(self):
        class Own(hvd.elastic.state.StateHandler):
            def sync(self):  # as Horovod's handlers do
                self.value.load_state_dict(hvd.broadcast_object(self.value.state_dict(), 0))

        def body(rank, own=False):
            state = self.make(rank)
            if own:
                state._handlers["sampler"] = Own(state.sampler)
            if rank == 1:
                state.sampler.record_batch(0, 2)
                state.commit()
            state.sync()
            root = 0 if own else 1
            assert (state.epoch, state.log, state.model.weight.tolist()) == (root, [root], [[root, root]])
            assert state.optimizer.param_groups[0]["lr"] == 0.1 * (root + 1)
            assert state.sampler.processed_num == (0 if own else 4), state.sampler.processed_num

        run_ranks(2, body)
        run_ranks(2, lambda rank: body(rank, own=True))

    def test_news_of_hosts_interrupts_all_ranks_at_once(self):
        def body(rank):
            state = self.make(rank)
            state.check_host_updates()
            if rank == 0:
                state.on_hosts_updated(1.0, HostUpdateResult.removed)
            with self.assertRaises(hvd.HostsUpdatedInterrupt) as caught:
                state.commit()
            assert caught.exception.skip_sync
            state.check_host_updates()
            if rank == 0:
                state.on_hosts_updated(2.0, HostUpdateResult.removed)
                state.on_hosts_updated(3.0, HostUpdateResult.added)
            with self.assertRaises(hvd.HostsUpdatedInterrupt) as caught:
                state.commit()
            assert not caught.exception.skip_sync

        with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"}):
            run_ranks(2, body)

    def test_a_new_rank_is_not_interrupted_by_old_news(self):
        def body(rank):
            state = self.make(rank)
            if rank == 0:
                state._last_updated_timestamp = 5
                state.on_hosts_updated(5, HostUpdateResult.added)  # reported twice
            state.commit()
            assert state._last_updated_timestamp == 5

        with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"}):
            run_ranks(2, body)

    def test_a_failure_amid_sync_loses_nothing(self):
        def body(rank):
            state = self.make(0)
            state.epoch, state.optimizer.param_groups[0]["lr"] = 7, 0.5
            state.model.weight.data.fill_(7)
            with mock.patch.object(state, "_bcast_object", side_effect=HorovodInternalError("a host died")):
                with self.assertRaises(HorovodInternalError):
                    state.sync()
            state.restore()
            assert (state.epoch, state.model.weight.tolist()) == (0, [[0, 0]])
            assert state.optimizer.param_groups[0]["lr"] == 0.1

        run_ranks(1, body)


class RunTest(unittest.TestCase):
    """The loop of run(), in a world of one."""

    def loop(self, events):
        """Let the training function raise events one after the other; return what was called."""
        calls = []

        class Recorder(hvd.elastic.State):
            def __init__(self):
                super().__init__(lambda obj: obj, lambda: 0)

            def sync(self):
                calls.append("sync")

            def save(self):
                calls.append("save")

            def restore(self):
                calls.append("restore")

            def reset(self):
                calls.append("reset")

        def body(rank):
            state = Recorder()
            left = iter(events)

            @hvd.elastic.run
            def train(state):
                calls.append("train")
                assert basics.is_initialized()
                event = next(left, None)
                if isinstance(event, Exception):
                    raise event
                if event is not None:
                    basics.world().session.told.append(event)
                    state.commit()
                return "done"

            def record():
                calls.append("callback")
                if calls.count("callback") == 1 and "fail in callback" in events:
                    raise HorovodInternalError("a host died")

            state.register_reset_callbacks([record])
            assert train(state) == "done"
            assert state not in notification_manager._listeners

        with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"}):
            run_ranks(1, body)
        return " ".join(calls)

    def test_what_is_called(self):
        came, left, failed = HostsChanged(2, 1), HostsChanged(1, 1), HorovodInternalError("a host died")
        for events, want in (
            ([failed], "sync train restore reset callback sync train"),
            ([came], "sync train save reset callback sync train"),
            ([HostsChanged(3, 1)], "sync train save reset callback sync train"),
            ([left], "sync train save reset callback train"),
            ([left, failed], "sync train save reset callback train restore reset callback sync train"),
            ([HostsChanged(2, 2), came], "sync train save reset callback sync train save"),  # which is stale
        ):
            self.assertEqual(self.loop(events), want, events)

    def test_nobody_has_the_state(self):
        """A line if the job had worlds before it, once, not if it was there from the first."""
        for first, events, want in (
            (1, [HorovodInternalError("")], 0), (2, [], 1), (2, [HorovodInternalError("")], 1),
        ):  # fmt: skip
            said = io.StringIO()
            with mock.patch("gorun.basics.late", lambda first=first: first > 1), redirect_stderr(said):
                self.loop(events)
            self.assertEqual(said.getvalue().count("every process that had"), want, (first, events))

    def test_failure_of_the_next_world(self):
        def body(rank):
            state = hvd.elastic.TorchState(sampler=hvd.elastic.ElasticSampler([1, 2]), batch=0)
            fail = [HorovodInternalError("a host died"), HorovodInternalError("another one, in init()"), None]

            @hvd.elastic.run
            def train(state):
                failure = fail.pop(0)
                if failure:
                    raise failure
                return "done"

            with mock.patch("gorun.process_sets.setup", side_effect=lambda *_: train_again(fail)):
                assert train(state) == "done"
            assert not fail

        def train_again(fail):
            if len(fail) == 2:
                raise fail.pop(0)

        run_ranks(1, body)

    def test_other_errors_pass(self):
        def body(rank):
            @hvd.elastic.run
            def train(state):
                raise ZeroDivisionError

            with self.assertRaises(ZeroDivisionError):
                train(hvd.elastic.TorchState())

        run_ranks(1, body)


class ProcessSetTest(unittest.TestCase):
    def test_survive_another_world(self):
        sets = [hvd.ProcessSet(ranks) for ranks in ([0, 2], [0, 1], [3], [0, 1, 2], [0, 1, 3])]
        expected = {
            4: [[0, 2], [0, 1], [3], [0, 1, 2], [0, 1, 3]],
            2: [[0], [0, 1], [], [0, 1], [0, 1]],
            3: [[0, 2], [0, 1], [], [0, 1, 2], [0, 1]],
        }
        for size, ranks in expected.items():

            def body(rank, size=size, ranks=ranks):
                mine = [hvd.ProcessSet(s._wanted) for s in sets]  # every rank is a process with its own
                basics.init(process_sets=mine)
                for members, process_set in zip(ranks, mine):
                    assert process_set.size() == len(members), (size, members)
                    assert process_set.included() == (rank in members)
                    if rank in members:
                        got = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=process_set)
                        assert got.item() == len(members), (size, members, got)
                basics.shutdown()
                assert [s.process_set_id for s in mine] == [None] * 5
                assert basics._state.process_sets is mine, "reset() gives them again"

            with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"}):
                run_ranks(size, body, initialized=False)
