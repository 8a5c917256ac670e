"""A loss costs the step that it interrupts, and no step counts twice or not at all."""

import collections
import copy
import gc
import io
import itertools
import os
import pickle
import random
import unittest
import weakref
from contextlib import redirect_stderr
from unittest import mock

from tests_path import need_torch

torch = need_torch()

import numpy as np  # noqa: E402
from fake import run_ranks  # noqa: E402
from torch import nn  # noqa: E402

import gorun.torch as hvd  # noqa: E402
from gorun.elastic import HostUpdateResult  # noqa: E402
from gorun.torch.elastic.updates import Sums  # noqa: E402


def setUpModule():  # noqa: N802 (unittest's name)
    elastic = mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"})
    elastic.start()
    unittest.addModuleCleanup(elastic.stop)


MOMENTS = "top", "forward", "backward", "applied", "summed", "counted", "committed"


class Died(Exception):
    """This rank is lost."""


class Counting(nn.Module):
    """A linear model of whole numbers, in which nothing is rounded, and which counts its forward passes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, dtype=torch.float64))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.seen = self.seen + 1
        return (self.weight * x).sum()


def batch(step):
    """Return what a step adds to the weights' momentum."""
    return torch.randint(-50, 50, (6,), generator=torch.Generator().manual_seed(step)).double()


def wanted(steps):
    """Return the weights after so many steps."""
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=1.0)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step)).backward()
        optimizer.step()
    return model.weight.tolist()


class Process:
    """One process of a job, as far as it outlives worlds."""

    def __init__(self, ddp=False, **values):
        self.model = Counting()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0, momentum=1.0)
        self.ddp = ddp
        if not ddp:
            of = self.optimizer, self.model.named_parameters()
            self.optimizer = hvd.DistributedOptimizer(*of, op=hvd.Sum)
        schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _: 1.0)
        self.schedule = schedule
        values = values or {"step": 0}
        self.state = hvd.elastic.TorchState(self.model, self.optimizer, schedule=schedule, **values)
        if ddp:
            self.state._follow_ddp()
        self.begun = collections.Counter()  # forward passes by step

    def step(self, at=lambda moment: None, number=None):
        """Train one step."""
        state = self.state
        number = state.step if number is None else number
        at("top")
        self.optimizer.zero_grad()
        self.begun[number] += 1
        mine = batch(number)
        mine[torch.arange(6) % hvd.size() != hvd.rank()] = 0
        loss = self.model(mine)
        hvd.allreduce(torch.ones(1), name="forward")
        at("forward")
        loss.backward()
        if self.ddp:
            self.model.weight.grad = hvd.allreduce(self.model.weight.grad, op=hvd.Sum, name="gradients")
            Sums.begun += 1
        at("backward")
        self.optimizer.step()
        self.schedule.step()
        at("applied")
        hvd.allreduce(torch.ones(1), name="metric")
        at("summed")

    def train(self, until, at=lambda step, moment: None, every=2):
        """Train in this world until a step, or raise what ends the world."""
        state = self.state
        while state.step < until:

            def here(moment, step=state.step):
                at(step, moment)

            self.step(here)
            state.step += 1
            if hasattr(state, "sampler"):
                state.sampler.advance()
            here("counted")
            if state.step % every == 0:
                state.commit()
                here("committed")

    def world(self, until, at=lambda step, moment: None, fresh=False, **how):
        """Begin a world, and train in it. Return whether it lasted."""
        try:
            if not fresh:
                self.state.on_reset()
            self.state.sync()
            self.train(until, at, **how)
        except Died:
            return None
        except hvd.HorovodInternalError:
            lose(self.state)
            return False
        return True


def lose(state):
    """Do what run() does when the world has ended."""
    state._failure = hvd.HorovodInternalError("lost")
    state.restore()


def run(processes, until, at=lambda rank, step, moment: None, **how):
    """Run a world."""

    def body(rank):
        return processes[rank].world(until, lambda step, moment: at(rank, step, moment), **how)

    return run_ranks(len(processes), body)


def third_dies(of, moment):
    """Return a function that has the third rank die at a moment of a step."""

    def at(rank, step, now):
        if (rank, step, now) == (2, of, moment):
            raise Died

    return at


class StepsTest(unittest.TestCase):
    def ended(self, processes, steps, note=""):
        """Check that every process has done each step once."""
        for process in processes:
            self.assertEqual(process.model.weight.tolist(), wanted(steps), note)
            self.assertEqual(process.model.seen.item(), steps, note)
            self.assertEqual((process.state.step, process.schedule.last_epoch), (steps, steps), note)

    def test_every_moment(self):
        """One of three ranks dies at each moment of a step, with and without the others behind."""
        for moment, ddp in itertools.product(MOMENTS, (False, True)):
            for told in (), (0,), (0, 1):  # who gets the sums of the step
                processes = [Process(ddp) for _ in range(3)]

                def at(rank, step, now, moment=moment, told=told):
                    if step == 5 and rank == 2 and now == moment:
                        raise Died
                    late = moment in MOMENTS[3:]
                    if step == 5 and rank < 2 and rank not in told and now == "backward" and late:
                        raise hvd.HorovodInternalError("the sums did not arrive")

                with self.subTest(moment, told=told, ddp=ddp):
                    self.assertEqual(run(processes, 9, at)[:2], [False, False])
                    left = processes[:2]
                    self.assertTrue(all(process.state._steps.proven for process in left))
                    self.assertEqual(run(left, 9), [True, True])
                    self.ended(left, 9)
                    for process in left:
                        self.assertLessEqual(max(process.begun.values()), 2, process.begun)
                        self.assertLessEqual(sum(process.begun.values()), 10, process.begun)

    def test_seeded_losses(self):
        """Ranks die and come, again and again, also while the state is shared."""
        ahead = 0
        for seed in range(40):
            rng = random.Random(seed)
            processes = [Process() for _ in range(rng.randint(2, 4))]
            self.assertEqual(set(run(processes, 4)), {True})
            until = 4
            for _ in range(4):
                until += rng.randint(1, 5)
                victim = rng.randrange(len(processes))
                struck, moment = rng.randrange(until - 4, until), rng.choice(MOMENTS)
                behind = {rank for rank in range(len(processes)) if rng.random() < 0.5} - {victim}
                amid = rng.random() < 0.2 and victim

                def at(rank, step, now, victim=victim, struck=struck, moment=moment, behind=behind):
                    if step == struck and rank == victim and now == moment:
                        raise Died
                    if step == struck and rank in behind and now == "backward":
                        raise hvd.HorovodInternalError("the sums did not arrive")

                before = [sum(process.begun.values()) - process.state.step for process in processes]
                ends = self.struck(processes, until, at, amid)
                left = [rank for rank, end in enumerate(ends) if end is not None]
                processes, before = [processes[rank] for rank in left], [before[rank] for rank in left]
                steps = [process.state._steps for process in processes]
                ahead += any(s.applied > s.begun for s in steps)
                fresh = [Process() for _ in range(rng.randint(1, 2))]
                self.assertEqual(set(run(processes + fresh, until)), {True}, seed)
                self.ended(processes + fresh, until, f"seed {seed}")
                for process, repeated in zip(processes, before):
                    again = sum(process.begun.values()) - process.state.step - repeated
                    self.assertLessEqual(again, 1, f"seed {seed}")
                processes += fresh
        self.assertGreater(ahead, 20)

    def struck(self, processes, until, at, amid):
        """Run a world that ends with a loss; return how it ended for each rank."""
        if amid is False:
            return run(processes, until, at)
        shares = hvd.elastic.TorchState._take_rest

        def body(rank):
            def dies(state, root):
                if rank == amid:
                    raise Died
                shares(state, root)

            with mock.patch.object(type(processes[rank].state), "_take_rest", dies):
                return processes[rank].world(until)

        classes = [type(f"State{i}", (hvd.elastic.TorchState,), {}) for i in range(len(processes))]
        for process, own in zip(processes, classes):
            process.state.__class__ = own
        return run_ranks(len(processes), body)

    def divided(self, processes, step=5):
        """Lose the third of three ranks when only the first has the sums of a step."""

        def at(rank, now, moment):
            if now == step and rank == 2 and moment == "applied":
                raise Died
            if now == step and rank == 1 and moment == "backward":
                raise hvd.HorovodInternalError("the sums did not arrive")

        self.assertEqual(run(processes, 9, at), [False, False, None])
        left = [process.state._steps for process in processes[:2]]
        self.assertEqual([(s.applied, s.begun) for s in left], [(step + 1, step), (step, step)])

    def test_parts_of_steps_by_ddp(self):
        """Steps have two batches, and one is dropped: a loss repeats a step, whose update counts once."""
        weights = []
        for lost in False, True:
            processes = [Process(ddp=True, micro=0) for _ in range(3)]

            def body(rank, processes=processes, lost=lost):
                process, state = processes[rank], processes[rank].state
                try:
                    state.on_reset()
                    state.sync()
                    while state.micro < 16:
                        n, process.begun = state.micro, process.begun + collections.Counter([state.micro])
                        if n % 2 == 0:
                            process.optimizer.zero_grad()
                        mine = batch(n)
                        mine[torch.arange(6) % hvd.size() != hvd.rank()] = 0
                        loss = process.model(mine)
                        hvd.allreduce(torch.ones(1), name="forward")
                        if lost and rank == 2 and n == 11:
                            raise Died
                        loss.backward()
                        if n % 2:
                            gradient = process.model.weight.grad
                            process.model.weight.grad = hvd.allreduce(gradient, op=hvd.Sum, name="gradients")
                            Sums.begun += 1
                            if n != 9 or process.begun[n] > 1:
                                process.optimizer.step()
                        state.micro += 1
                        state.commit()
                except Died:
                    pass
                except hvd.HorovodInternalError:
                    lose(state)

            run_ranks(3, body)
            if lost:
                run_ranks(2, body)
            self.assertEqual((processes[0].begun[9], processes[0].begun[10]), (1, 1 + lost))
            weights.append(processes[0].model.weight.tolist())
        self.assertEqual(*weights)

    def test_a_dropped_step_that_was_ahead(self):
        """The update of a step that is repeated is left out, and not the next one if that step is dropped."""
        processes = [Process(ddp=True) for _ in range(3)]

        run(processes, 12, third_dies(9, "applied"))

        def body(rank):
            process, state = processes[rank], processes[rank].state
            state.on_reset()
            state.sync()
            step, updated = process.optimizer.step, []
            process.optimizer.step = lambda: step() if state.step != 9 else None
            for _ in range(3):
                before = process.model.weight.tolist()
                updated.append((state.step, before != (process.step() or process.model.weight.tolist())))
                state.step += 1
            return updated

        self.assertEqual(run_ranks(2, body), [[(9, False), (10, True), (11, True)]] * 2)

    def test_a_loss_before_the_first_step_by_ddp(self):
        """DDP has been made, which writes the weights that they have, or a commit comes first."""
        processes = [Process(ddp=True) for _ in range(3)]

        run(processes, 12, third_dies(9, "forward"))

        def body(rank):
            state = processes[rank].state
            state._steps._copied_at = float("inf")  # no copy is due
            state.on_reset()
            state.sync()
            with torch.no_grad():
                processes[rank].model.weight.add_(0)
            state.commit()
            lose(state)
            return state.step, state._steps.against

        self.assertEqual(run_ranks(2, body), [(9, "")] * 2)

    def test_a_sampler_that_a_step_does_not_use(self):
        """Only the step that is repeated leaves behind what a larger world has trained."""
        values = {"step": 0, "sampler": hvd.elastic.ExactSampler(1000, 4)}
        values["other"] = hvd.elastic.ExactSampler(10, 2)
        processes = [Process(**copy.deepcopy(values)) for _ in range(3)]
        self.divided(processes)
        self.assertEqual(run(processes[:2], 8), [True, True])

        def body(rank):
            processes[rank].state.other.advance()
            return processes[rank].state.other.position

        self.assertEqual(run_ranks(2, body), [4, 4])

    def test_a_step_of_a_larger_world(self):
        """What the update that is left out was made of is left behind, also by the rank that lacked it."""
        processes = [Process(step=0, sampler=hvd.elastic.ExactSampler(1000, 4)) for _ in range(3)]
        self.divided(processes)
        self.assertEqual(run(processes[:2], 6), [True, True])
        self.assertEqual([process.state.sampler.position for process in processes[:2]], [6 * 12] * 2)
        self.assertEqual(run(processes[:2], 9), [True, True])
        self.assertEqual([process.state.sampler.position for process in processes[:2]], [6 * 12 + 3 * 8] * 2)
        self.ended(processes[:2], 9)

    def test_a_loss_amid_the_transfer(self):
        """A rank with weights of two ranks goes back to its copy, and gets those of the other once more."""
        processes = [Process() for _ in range(3)]
        self.divided(processes)
        lost = hvd.HorovodInternalError("lost")
        with mock.patch("gorun.torch.elastic.state.broadcast_optimizer_state", side_effect=lost):
            self.assertEqual(run(processes[:2], 9), [False, False])
        ahead, behind = [process.state._steps.applied for process in processes[:2]]
        self.assertEqual((ahead, behind < 5), (6, True))
        self.assertEqual(run(processes[:2], 9), [True, True])
        self.ended(processes[:2], 9)
        self.assertTrue(all(process.state._steps.proven for process in processes[:2]))

    def test_a_copy_of_a_step_that_is_repeated(self):
        """A copy may have weights with the update of the step that its values begin with."""
        processes = [Process() for _ in range(3)]
        self.divided(processes)

        def at(rank, step, moment):
            if rank == 0:
                raise Died
            processes[1].model.weight.data.zero_()
            raise hvd.HorovodInternalError("lost")

        self.assertEqual(run(processes[:2], 9, at), [None, False])
        steps = processes[1].state._steps
        self.assertEqual((steps.proven, steps.applied, steps.begun), (False, 6, 5))
        self.assertEqual(run(processes[1:2], 9), [True])
        self.ended(processes[1:2], 9)

    def test_nothing_is_sent_to_those_who_have_it(self):
        processes = [Process() for _ in range(2)]
        self.assertEqual(run(processes, 6), [True, True])
        with mock.patch.object(hvd.elastic.TorchState, "_take_over", side_effect=AssertionError("sent")):
            self.assertEqual(run(processes, 9), [True, True])
        self.ended(processes, 9)
        sent = []
        share = hvd.elastic.TorchState._take_over

        def record(state, root):
            sent.append(root)
            share(state, root)

        with mock.patch.object(hvd.elastic.TorchState, "_take_over", record):
            processes.insert(0, Process())
            self.assertEqual(run(processes, 12), [True] * 3)
        self.assertIn(sent, ([1] * 3, [2] * 3))  # the one that has made a copy more, if time was due for one
        self.ended(processes, 12)

    def test_a_commit_copies_no_weights(self):
        def body(rank):
            process = Process()
            # A copy takes a second, and so does a commit.
            process.state._steps._clock = iter(range(1000)).__next__
            process.state.sync()
            process.train(8)
            copies = process.state._commits
            process.train(800)
            return copies, process.state._commits

        self.assertEqual(run_ranks(1, body), [(1, 2)])

    def test_accumulated_passes(self):
        """A step of several backward passes is done again as a whole, also after a commit in between."""
        for commit in False, True:
            processes = [Process() for _ in range(2)]

            def body(rank, processes=processes, commit=commit, lost=None):
                process = processes[rank]
                state, optimizer = process.state, process.optimizer
                optimizer.backward_passes_per_step = 2
                try:
                    state.on_reset()
                    state.sync()
                    while state.step < 12:
                        optimizer.zero_grad()
                        for _ in range(2):
                            mine = batch(state.step)
                            mine[torch.arange(6) % hvd.size() != hvd.rank()] = 0
                            process.model(mine).backward()
                            state.step += 1
                            if commit or state.step % 2 == 0:
                                state.commit()
                            if state.step == lost:
                                raise hvd.HorovodInternalError("lost")
                        optimizer.step()
                except hvd.HorovodInternalError:
                    lose(state)
                return process

            run_ranks(2, lambda rank: body(rank, lost=7))
            self.assertEqual({process.state.step for process in processes}, {6})
            run_ranks(2, body)
            want = Counting()
            reference = torch.optim.SGD(want.parameters(), lr=1.0, momentum=1.0)
            for step in range(0, 12, 2):
                reference.zero_grad()
                (want(batch(step)) + want(batch(step + 1))).backward()
                reference.step()
            for process in processes:
                self.assertEqual(process.model.weight.tolist(), want.weight.tolist())
                self.assertEqual(process.model.seen.item(), 12)

    def test_a_scaler_drops_a_step(self):
        """Its step has no update, and the next one begins all the same, also when a loss repeats it."""

        def body(rank, lost):
            process = Process()
            state = process.state
            state.sync()
            applied = []

            def train():
                while state.step < 8:
                    process.optimizer.zero_grad()
                    process.model(batch(state.step)).backward()
                    process.optimizer.synchronize()
                    if state.step not in (3, 6):  # else as a scaler that has found an infinite gradient
                        with process.optimizer.skip_synchronize():
                            process.optimizer.step()
                    if state.step == lost and not applied:
                        applied.append(lost)
                        raise hvd.HorovodInternalError("lost")
                    state.step += 1
                    state.commit()

            try:
                train()
            except hvd.HorovodInternalError:
                lose(state)
                self.assertEqual(state.step, lost)
                state.on_reset()
                state.sync()
                train()
            self.assertEqual(state._steps.applied, 6)
            return process.model.weight.tolist()

        ends = [run_ranks(1, lambda rank, lost=lost: body(rank, lost))[0] for lost in (None, 3, 4, 5, 6)]
        self.assertEqual(ends, [ends[0]] * 5)

    def test_generators_and_options(self):
        def body(rank):
            process = Process()
            state = process.state
            state.sync()
            process.train(6)
            drawn = []
            for _ in range(2):
                for group in process.optimizer.param_groups:
                    group["lr"] = 1.0
                process.model(batch(6))
                drawn.append((torch.rand(2).tolist(), random.random()))
                for group in process.optimizer.param_groups:
                    group["lr"] = 0.5
                lose(state)
                self.assertEqual(process.optimizer.param_groups[0]["lr"], 1.0)
                self.assertIsNone(process.model.weight.grad)
                state.on_reset()
            self.assertEqual(drawn[0], drawn[1])

        run_ranks(1, body)

    def test_a_loader_that_fetches_ahead(self):
        """Each sample of an ExactSampler counts once, and each batch has one update."""
        seen = collections.Counter()

        def body(rank):
            model = Counting()
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
            numbers = torch.arange(50)
            sampler = hvd.elastic.ExactSampler(numbers, 4)
            loader = torch.utils.data.DataLoader(
                numbers, batch_sampler=sampler, num_workers=2, prefetch_factor=4
            )
            state = hvd.elastic.TorchState(model, optimizer, sampler=sampler)
            losses = iter((5, 8, 12))

            def train(lost):
                while sampler.epoch < 2:
                    for samples in loader:
                        optimizer.zero_grad()
                        model(torch.ones(6) * sampler.weight()).backward()
                        optimizer.step()
                        if state._steps.applied == lost:  # before the position is told
                            raise hvd.HorovodInternalError("lost")
                        seen.update(samples.tolist())
                        sampler.advance()
                        state.commit()
                    sampler.next_epoch()

            state.sync()
            while sampler.epoch < 2:
                try:
                    train(next(losses, None))
                except hvd.HorovodInternalError:
                    lose(state)
                    state.on_reset()
                    state.sync()
            self.assertEqual((len(seen), set(seen.values())), (50, {2}))
            self.assertEqual(state._steps.applied, 26)

        run_ranks(1, body)

    def test_hosts_come_and_go(self):
        """The next world goes on from the commit, and a script that counts late does not count twice."""
        for early in False, True:
            with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"}):

                def body(rank, early=early):
                    process = Process()
                    state = process.state
                    state.sync()

                    def train(until):
                        for step in range(state.step, until):
                            state.step = step
                            process.step()
                            if step == 5 and rank == 0:
                                state.on_hosts_updated(9.0, HostUpdateResult.added)
                            if not early:
                                state.step += 1
                            state.commit()

                    with self.assertRaises(hvd.HostsUpdatedInterrupt):
                        train(9)
                    state.on_reset()
                    state.sync()
                    train(9)
                    return process.model.weight.tolist()

                self.assertEqual(run_ranks(2, body), [wanted(9)] * 2)


class PremiseTest(unittest.TestCase):
    """What breaks the premise has the weights copied again, with one line."""

    def train(self, script, steps=8, values=None, ddp=False):
        """Let a script train a process in one world after the other; return it, and what was said."""
        said = io.StringIO()

        def body(rank):
            process = Process(ddp, **(values or {}))
            process.state.sync()
            script(process, steps)
            return process

        with redirect_stderr(said):
            (process,) = run_ranks(1, body)
        return process, said.getvalue()

    def check(self, why, script, values=None):
        process, said = self.train(script, values=values)
        self.assertFalse(process.state._steps.proven)
        self.assertEqual(said.count("gorun: note: commit() copies the weights"), 1, said)
        self.assertIn(why, said)
        self.assertGreaterEqual(process.state._commits, 3)

    def test_what_breaks_it(self):
        def written(process, steps):
            for _ in range(steps):
                process.train(process.state.step + 1, every=1)
                with torch.no_grad():
                    process.model.weight.clamp_(-1e9, 1e9)

        def unseen(process, steps):
            for _ in range(steps):
                process.optimizer.zero_grad()
                process.model.forward(batch(0)).backward()
                process.optimizer.step()
                process.state.step += 1
                process.state.commit()

        def closure(process, steps):
            def evaluate():
                process.optimizer.zero_grad()
                loss = process.model(batch(0))
                loss.backward()
                return loss

            for _ in range(steps):
                process.optimizer.step(evaluate)
                process.state.step += 1
                process.state.commit()

        def replaced(process, steps):
            process.state.model = Counting()
            for _ in range(steps):
                process.state.commit()

        def counted_early(process, steps):
            while process.state.step < steps:
                process.state.step += 1
                process.step()
                process.state.commit()

        def epochs(process, steps):
            for process.state.epoch in range(steps):
                for step in range(3):
                    process.step(number=step)
                process.state.commit()

        self.check("something other than optimizer.step() has written them", written)
        self.check("no forward pass of the state's model, in training mode, begins the step", unseen)
        self.check("optimizer.step() is given a closure", closure)
        self.check("the script has put another object into the state", replaced)
        self.check("the script changes step before the first forward pass", counted_early)
        self.check("the values of the state are the same in one step as in the next", epochs, {"epoch": 0})

    def test_large_values(self):
        """Values that take long to copy are copied at commits only."""

        with mock.patch("gorun.torch.elastic.steps.STEP_SECONDS", 0.02):
            log = list(range(20_000))
            _, said = self.train(lambda process, _: process.train(30), values={"step": 0, "log": log})
        self.assertRegex(said, r"what a step changes besides them takes \d+ % of the time to copy")

    def test_commits_of_epochs_show_nothing(self):
        """A script that commits only when the epoch changes too may begin with epochs only."""

        def epochs(process, steps):
            while process.state.epoch < steps:
                for step in range(3):
                    process.step(number=step)
                    process.state.batch += 1
                process.state.epoch += 1
                process.state.commit()
            process.step(number=0)
            lose(process.state)

        process, said = self.train(epochs, values={"epoch": 0, "batch": 0})
        self.assertFalse(process.state._steps.proven)
        self.assertEqual((process.state.epoch, process.state.batch, said), (8, 24, ""))
        self.assertEqual(process.model.seen.item(), 24)

    def test_what_counts_steps(self):
        """Whole numbers do, also those of NumPy, and in containers."""

        def train(start, after):
            def script(process, steps):
                for number in range(steps):
                    process.step(number=number)
                    process.state.at = after(process.state.at)
                    process.state.commit()

            process, said = self.train(script, values={"at": start})
            return process.state._steps.proven, said

        for start, after in (
            (np.int64(0), lambda at: at + np.int64(1)),
            ({"batch": 0}, lambda at: {"batch": at["batch"] + 1}),
            ((0, [0.5]), lambda at: (at[0] + 1, at[1])),
            ([0], lambda at: [at[0] + 1]),
        ):
            self.assertEqual(train(start, after), (True, ""))
        proven, said = train(0.0, lambda at: at + 1)
        self.assertFalse(proven)
        self.assertIn("no whole number or sampler changes with a step, but only at", said)
        for start, after in (
            (False, lambda at: not at),
            ((1, 0.0), lambda at: (1, at[1] + 1)),
            ([], lambda at: [*at, 1]),
        ):
            self.assertFalse(train(start, after)[0], start)

    def test_commits_in_the_loop_of_the_steps(self):
        """A script that commits only after that loop may be able to begin it at its start only."""

        def after(process, steps):
            while process.state.step < 3 * steps:
                for number in range(3):
                    process.step(number=number)
                    process.state.step += 1
                process.state.commit()

        def called(process, steps):
            def epoch():
                for number in range(3):
                    process.step(number=number)
                    process.state.step += 1

            while process.state.step < 3 * steps:
                epoch()
                process.state.commit()

        def comprehension(process, steps):
            def step(number):
                process.step(number=number)
                process.state.step += 1

            while process.state.step < 3 * steps:
                [step(number) for number in range(3)]
                process.state.commit()

        def horovods(process, steps):
            state = process.state
            for state.epoch in range(state.epoch, steps):  # noqa: B020
                for state.batch in range(state.batch, 3):  # noqa: B020
                    process.step(number=3 * state.epoch + state.batch)
                    if state.batch % 2 == 0:
                        state.commit()
                state.batch = 0

        def guide(process, steps):
            while process.state.step < steps:
                process.step()
                process.state.step += 1
                if process.state.step % 2 == 0:
                    process.state.commit()

        def sampled(process, steps):
            sampler = process.state.sampler
            while sampler.epoch < steps:
                for _ in sampler:
                    process.step(number=0)
                    sampler.advance()
                process.state.commit()
                sampler.next_epoch()

        epochs, exact = {"epoch": 0, "batch": 0}, {"sampler": hvd.elastic.ExactSampler(12, 4)}
        for script in after, called, comprehension:
            process, said = self.train(script)
            self.assertEqual((process.state._steps.proven, said), (False, ""), script)
            self.assertEqual(process.state._commits, 9, "each commit copies")
        for script, values in (horovods, epochs), (guide, {}), (sampled, exact):
            process, said = self.train(script, values=values)
            self.assertEqual((process.state._steps.proven, said), (True, ""), script)

    def test_other_states(self):
        def line(make):
            said = io.StringIO()
            with redirect_stderr(said):

                def body(rank):
                    state = make(Counting())
                    state.commit()
                    state.commit()

                run_ranks(1, body)
            return said.getvalue()

        state, sgd = hvd.elastic.TorchState, torch.optim.SGD

        def distributed(model, **how):
            return hvd.DistributedOptimizer(sgd(model.parameters(), lr=1.0), **how)

        self.assertIn("optimizer is not a Dist", line(lambda m: state(m, sgd(m.parameters(), lr=1.0))))
        self.assertIn("Adasum", line(lambda m: state(m, distributed(m, op=hvd.Adasum))))
        two = line(lambda m: state(m, distributed(m), second=sgd([m.weight], 1.0)))
        self.assertIn("1 models and 2 optimizers", two)
        self.assertIn("no models", line(lambda m: state(None, distributed(m))))
        self.assertIn("not those of a model", line(lambda m: state(Counting(), distributed(m))))
        self.assertEqual("", line(lambda m: state(step=0)))
        self.assertEqual("", line(lambda m: state(m, distributed(m), step=0)))
        zero = type("ZeroRedundancyOptimizer", (sgd,), {})
        self.assertIn("takes its shards with it", line(lambda m: state(m, zero(m.parameters(), lr=1.0))))

    def test_unseen_writes(self):
        """Writes that torch does not count, as for an evaluation, cost the steps since a copy."""

        def swapped(process, steps):
            state = process.state
            process.train(8)
            state._copy()
            process.train(10, every=100)
            process.model.weight.data.zero_()
            lose(state)
            self.assertEqual(state.step, 8)
            self.assertEqual(process.model.weight.tolist(), wanted(8))
            state.on_reset()
            state.sync()
            process.train(12)

        process, said = self.train(swapped)
        self.assertIn("something other than", said)
        self.assertEqual(process.model.weight.tolist(), wanted(12))

    def test_a_plain_optimizer(self):
        """Its update needs DDP's sums, schedulers may wrap it, and DDP writes what the weights have."""
        process, said = self.train(lambda process, steps: None, ddp=True)
        torch.optim.lr_scheduler.LambdaLR(process.optimizer, lambda _: 1.0)
        with mock.patch.object(torch.optim.SGD, "step", lambda optimizer: "own"):  # without closure=
            own = torch.optim.SGD(process.model.parameters(), lr=1.0)
            hvd.elastic.TorchState(process.model, own)._follow_ddp()
            self.assertEqual(own.step(), "own")
        self.assertEqual(copy.deepcopy(process.optimizer).state_dict()["param_groups"][0]["lr"], 1.0)

        def script(process, steps):
            process.model.weight.data = process.model.weight.detach().clone()
            with torch.no_grad():
                process.model.weight.add_(0)
            process.train(6)
            self.assertTrue(process.state._steps.proven)
            with mock.patch.object(Sums, "begun", 0):
                process.step()

        self.assertIn("was not preceded by the sums", self.train(script, ddp=True)[1])

    def test_the_script_goes_back(self):
        """A script that does not want its weights gets the last copy; commits copy from then on."""
        raised = hvd.HorovodInternalError("the weights are no numbers")

        def diverges(how, seen):
            def script(process, steps):
                state = process.state

                @hvd.elastic.run
                def train(state):
                    while state.step < 10:
                        seen.append(state.step)
                        process.step()
                        if state.step in (7, 9) and seen.count(state.step) == 1:
                            process.model.weight.data.fill_(float("nan"))
                            state._steps._sample.take()  # as if the update had written that
                            how(state)
                            continue
                        state.step += 1
                        state.commit()

                state._steps._clock = iter(range(1000)).__next__  # a copy lasts for long enough
                with mock.patch("gorun.basics.reset"):
                    train(state)

            return script

        def raises(state):
            raise raised

        for how in raises, hvd.elastic.TorchState.restore:
            seen = []
            process, said = self.train(diverges(how, seen))
            self.assertEqual(process.model.weight.tolist(), wanted(10))
            self.assertEqual(seen, [*range(8), *range(1, 10), 9], "first an old copy, then the commit")
            self.assertIn("the script itself goes back to its commits", said)
            self.assertEqual(said.count("goes back to a copy of"), 1, said)

    def test_the_script_goes_back_to_a_commit_of_the_weights(self):
        """Weights without an update since a commit are those of the commit, which needs no copy."""

        def script(process, steps):
            def at(moment):
                if moment == "backward" and process.state.step == 7 and process.begun[7] == 1:
                    raise hvd.HorovodInternalError("the loss is no number")

            @hvd.elastic.run
            def train(state):
                while state.step < 10:
                    process.step(at)
                    state.step += 1
                    state.commit()

            process.state._steps._clock = iter(range(1000)).__next__  # a copy lasts for long enough
            with mock.patch("gorun.basics.reset"):
                train(process.state)

        process, said = self.train(script)
        self.assertEqual(process.model.weight.tolist(), wanted(10))
        self.assertEqual((process.model.seen, process.schedule.last_epoch), (10, 10))
        self.assertEqual((process.begun[6], process.begun[7]), (1, 2))
        self.assertNotIn("copy", said)

    def test_the_script_goes_back_from_a_value(self):
        """A script that goes back has the values of its commit, not those that it has set since."""

        def script(process, steps):
            def at(now):
                if now == moment and process.state.step == 7 and len(begun) == 1:
                    raise hvd.HorovodInternalError("the loss is no number")

            @hvd.elastic.run
            def train(state):
                begun.append(state.epoch)
                while state.step < 10:
                    if state.step == 7:
                        state.epoch += 1
                    process.step(at)
                    state.step += 1
                    state.commit()

            process.state._steps._clock = iter(range(1000)).__next__  # a copy lasts for long enough
            with mock.patch("gorun.basics.reset"):
                train(process.state)

        for moment in "top", "backward":
            begun = []
            process, said = self.train(script, values={"step": 0, "epoch": 0})
            self.assertEqual((begun, process.state.epoch), ([0, 0], 1), f"{moment}: {said}")
            self.assertEqual(process.model.weight.tolist(), wanted(10))

    def test_hosts_come_after_the_script_went_back(self):
        """The update of the step before the interrupt counts, although the script went back earlier."""

        def script(process, steps):
            state, bad = process.state, [5]
            with self.assertRaises(hvd.HostsUpdatedInterrupt):
                while True:
                    process.step()
                    if state.step in bad:
                        bad.clear()
                        state.restore()
                        continue
                    state.step += 1
                    if state.step == 9:
                        state.on_hosts_updated(9.0, HostUpdateResult.added)
                    state.check_host_updates()
                    if state.step % 2 == 0:
                        state.commit()
            state.on_reset()
            state.sync()
            process.train(12)

        process, _ = self.train(script)
        self.assertEqual(process.model.weight.tolist(), wanted(12))

    def test_ranks_go_back_together(self):
        """Copies of ranks may be of different commits, so restore() has them take the newest."""

        processes = [Process() for _ in range(2)]

        def body(rank):
            process = processes[rank]
            process.state.sync()
            process.state._steps._clock = iter(range(1000)).__next__
            process.state._steps._copied_at, process.state._steps._copy_took = 0, 1
            process.train(4)
            if rank:
                process.state._steps._copied_at = float("-inf")
            process.train(6, every=1)
            process.step()  # or the weights were those of the last commit
            with self.assertRaisesRegex(hvd.HorovodInternalError, "other ranks may have others"):
                process.state.restore()
            before = process.state.step
            lose(process.state)
            return before

        self.assertEqual(run_ranks(2, body), [0, 5])
        self.assertEqual(run(processes, 9), [True, True])
        self.assertEqual([process.model.weight.tolist() for process in processes], [wanted(9)] * 2)

    def test_values_that_some_steps_change_early(self):
        """They change once, although a loss has the script change them twice."""

        def script(process, steps):
            state = process.state

            def train(lost=None):
                while state.step < 25:
                    if state.step and state.step % 10 == 0:
                        state.epoch += 1
                        process.schedule.step()
                    process.optimizer.zero_grad()
                    process.model(batch(state.step)).backward()
                    process.optimizer.step()
                    if state.step == lost:
                        raise hvd.HorovodInternalError("lost")
                    state.step += 1
                    state.commit()

            with self.assertRaises(hvd.HorovodInternalError):
                train(lost=20)
            self.assertTrue(state._steps.proven)
            lose(state)
            state.on_reset()
            state.sync()
            train()

        process, said = self.train(script, values={"step": 0, "epoch": 0})
        self.assertIn("the script changes epoch and schedule before the first forward pass", said)
        self.assertEqual((process.state.epoch, process.schedule.last_epoch), (2, 2))
        self.assertEqual(process.model.weight.tolist(), wanted(25))

    def test_steady_writes(self):
        """Writes that torch does not count are seen at the next commit where that takes no wait for a GPU."""

        def script(write):
            def train(process, steps):
                for process.state.step in range(6):
                    process.step()
                    write(process.model.weight)
                    process.state.commit()

            return train

        def decays(weight):
            weight.data.mul_(0.5)

        def replaces(weight):
            weight.data = weight.data * 0.5

        for write in decays, replaces:
            self.check("something other than optimizer.step() has written them", script(write))

        def moves(weight):
            weight.data = weight.data.clone()

        process, said = self.train(script(moves))
        self.assertEqual((process.state._steps.proven, process.state._steps._sample.intact()), (True, True))
        self.assertEqual(said, "")

    def test_steps_outside_of_the_function(self):
        """They count, before training and after it, and break nothing."""

        def script(process, steps):
            state = process.state

            @hvd.elastic.run
            def train(state, until):
                process.train(until)
                self.assertTrue(state._steps.proven)

            for until in 6, 12:
                state._ended()
                process.step()
                state.step += 1
                train(state, until)
            process.step()
            copies = state._commits
            state.commit()
            self.assertEqual(state._commits, copies + 1)

        process, said = self.train(script)
        self.assertEqual((process.model.weight.tolist(), said), (wanted(13), ""))

    def test_an_update_that_is_left_out_when_the_function_ends(self):
        def script(process, steps):
            process.train(8)
            process.step()  # but it is not counted
            lose(process.state)
            process.state.on_reset()
            process.state.sync()
            process.state._ended()  # without a step
            process.step(number=9)

        process, _ = self.train(script)
        self.assertEqual(process.state._steps.applied, 10)

    def test_jobs_of_a_fixed_size(self):
        """They have no use for any of this, and pay nothing."""

        def body(rank):
            process = Process()
            process.state.sync()
            process.train(8)
            steps = process.state._steps
            self.assertEqual((steps.proven, steps._hooks, process.state._commits), (False, [], 5))
            before = steps._sample._taken
            process.step()
            self.assertIs(steps._sample._taken, before)

        with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "0"}):
            run_ranks(1, body)

    def test_nothing_keeps_a_state_alive(self):
        def body(rank):
            process = Process()
            process.train(4)
            state = weakref.ref(process.state)
            gc.disable()
            try:
                process.state = None
                self.assertIsNone(state())
            finally:
                gc.enable()

        run_ranks(1, body)

    def test_export(self):
        """A model can be traced and scripted while it is trained, and so can a copy of it."""

        def body(rank):
            model = nn.Sequential(nn.Linear(6, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

            @hvd.elastic.run
            def train(state):
                while state.step < 6:
                    optimizer.zero_grad()
                    for other in model, copy.deepcopy(model), nn.Sequential(model):
                        torch.jit.trace(other, torch.ones(2, 6))
                        scripted = torch.jit.script(other)
                        want = model.eval()(torch.ones(2, 6))
                        self.assertTrue(torch.equal(scripted(torch.ones(2, 6)), want))
                    model.train()(torch.ones(2, 6)).sum().backward()
                    optimizer.step()
                    state.step += 1
                    state.commit()
                self.assertTrue(state._steps.proven)
                optimizer.zero_grad()
                scripted.train()(torch.ones(2, 6)).sum().backward()  # which has no hook
                optimizer.step()
                self.assertIn("no forward pass of the state's model", state._steps.against)

            state = hvd.elastic.TorchState(model, optimizer, step=0)
            train(state)
            scripted = torch.jit.script(model)
            state = hvd.elastic.TorchState(scripted, optimizer, step=0)
            self.assertIn("model is compiled by torch.jit", state._note)
            state.commit()

        run_ranks(1, body)

    def test_copies_of_a_model_tell_nothing(self):
        process, _ = self.train(lambda process, steps: process.train(steps))
        steps = process.state._steps
        before = steps.begun
        for other in copy.deepcopy(process.model), pickle.loads(pickle.dumps(process.model)):
            steps._due = True
            other(batch(0)).backward()
            self.assertTrue(steps._due)
            pickle.dumps(other)
        self.assertEqual(steps.begun, before)
        process.model.eval()(batch(0))
        with torch.no_grad():
            process.model.train()(batch(0))
        self.assertTrue(steps._due)
