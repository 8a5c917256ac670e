"""Run by every rank of a real job: where a Ctrl-C cuts a submission short on one rank, no result is wrong."""

import signal
import sys
import time

import torch

import gorun.torch as hvd
from gorun import basics, constants, errors

hvd.init()
rank, size = hvd.rank(), hvd.size()
world = basics.world()
STEP = ("torch/buckets.py", "torch/reducer.py", "torch/optimizer.py")
PARTS = (
    "session.py", "library.py", "world.py", "staging.py", "buckets.py", "reducer.py", "collectives.py",
)  # fmt: skip
ALSO_RETURNS = ("call", "c_return", "return")
N = 1 << 10


def struck(place, call, events=("call", "c_return")):
    """Call, with a KeyboardInterrupt at one of the places where Python may raise it; was there one?"""
    left, value = place, None

    def strike(frame, event, _):
        nonlocal left
        if event in events and frame.f_code.co_filename.endswith(PARTS):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        value = call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return left <= 0, value


def struck_in_a_bytecode(place, call):
    """The same, at one of the bytecodes of what has the state of a step."""
    left = place

    def strike(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.endswith(STEP):
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0:
            left -= 1
            raise KeyboardInterrupt
        return strike

    sys.settrace(strike)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return left <= 0, None


def everywhere(turn):
    """Take turns with rank 0 struck at every place, one after the other."""
    place, more = 0, True
    while more:
        place += 1
        more = turn(place)
        more = hvd.broadcast(torch.tensor([int(more)]), 0, name="more").item()
    assert rank or place > 5, place


def end():
    """Wait until the daemon has answered all that no thread waits for."""
    since = time.monotonic()
    while world._abandoned or world._cut_short:
        assert time.monotonic() - since < 10, "something is in flight for ever"
        world.sweep_names()


def unless_in_flight(begin):
    """Begin an operation again, unless its name shows that it was submitted."""
    try:
        return begin()
    except ValueError as error:
        assert "same name" in str(error), error
        return None


def tensors(value):
    return [torch.full((N,), value), torch.full((N,), value, dtype=torch.float64)]


def submission(some):
    def submit(value, name):
        return hvd.grouped_allreduce_async(tensors(value)[:some], name=name, op=hvd.Sum)

    def turn(place):
        more = False
        if rank == 0:
            more, x = struck(place, lambda: submit(1.0, "x"))
            if x is None:
                x = unless_in_flight(lambda: submit(1.0, "x"))
            y = submit(100.0, "y")
            hvd.barrier()
            if x is not None:
                hvd.synchronize(x)
        else:
            hvd.barrier()
            x = submit(1.0, "x")
            y = submit(100.0, "y")
            assert all(x.eq(size).all() for x in hvd.synchronize(x)), f"x, struck at {place}"
        assert all(y.eq(100 * size).all() for y in hvd.synchronize(y)), f"y, struck at {place}"
        end()
        hvd.barrier()
        return more

    return turn


class Summand:
    """A tensor that is summed in place, again and again under one name."""

    def __init__(self, name):
        self.name = name
        for _ in range(2):
            hvd.synchronize(self.begin())

    def begin(self):
        self.tensor = torch.full((3,), 7.0)
        return hvd.allreduce_async_(self.tensor, name=self.name, op=hvd.Sum)

    def check(self, place):
        assert self.tensor.eq(7 * size).all(), (self.name, place, self.tensor)

    def go_on(self, place):
        """Check that the name is as good as any other."""
        for _ in range(3):
            hvd.synchronize(self.begin())
            self.check(place)
        end()
        hvd.barrier()


def begun_again(place):
    """What was submitted counts for the others, and what was not comes once more."""
    more, x = False, Summand(f"begun.{place}")
    handle = None
    if rank == 0:
        more, handle = struck(place, x.begin, ALSO_RETURNS)
        if handle is None:
            handle = unless_in_flight(x.begin)
    hvd.barrier()
    if rank:
        handle = x.begin()
    for lost in [handle] if handle is not None else list(world._operations):
        hvd.synchronize(lost)
    if handle is not None:
        x.check(place)
    end()
    x.go_on(place)
    return more


def until_polled(handle):
    while not hvd.poll(handle):
        pass


def waited(kind, call):
    """A wait that was cut short can be taken up again; nothing is lost, or submitted twice."""

    def turn(place):
        more, x = False, Summand(f"{kind}.{place}")
        handle = x.begin()
        if kind == "ended":
            hvd.barrier()
        if rank == 0:
            more, _ = struck(place, lambda: call(handle), ALSO_RETURNS)
        try:
            hvd.synchronize(handle)
            x.check(place)
        except errors.InvalidArgument:
            assert more, "nobody interrupted it"  # and here it had ended
        x.go_on(place)
        return more

    return turn


def read(place, call):
    """Call, struck also where a function returns, and so is who then handles the message in hand again."""
    more, value = struck(place, call, ALSO_RETURNS)
    for again in range(1, 30 * more):
        struck(again, world.session.news, ALSO_RETURNS)
    return more, value


def gather(value):
    block = world.session.alloc(4 * N)
    block.view.cast("f")[:] = torch.full((N,), value).numpy()
    return world.session.submit(constants.ALLGATHER, f"g{value}", constants.FLOAT32, (N,), block, None)


def result(place):
    """What an operation brought is given back once, and not before this rank is done with it."""
    session, more, kept = world.session, False, None
    first = gather(1.0)
    if rank == 0:
        more, kept = read(place, lambda: session.wait(first))
    try:
        kept = kept or session.wait(first)
    except errors.InvalidArgument:
        assert rank == 0, "nobody interrupted it"  # and here it had ended
    others = [session.wait(gather(float(value))) for value in (2, 3)]
    for value, one in enumerate((kept, *others), 1):
        assert one is None or all(x == value for x in one.view.cast("f")), (value, place)
        if one is not None:
            one.release()
    return more


net = torch.nn.Linear(16, 16, bias=False)
net.other = torch.nn.Parameter(torch.zeros(N, dtype=torch.float64))  # in another bucket
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(net.parameters(), lr=1.0), named_parameters=net.named_parameters(), op=hvd.Sum
)


def zero(value):
    """Begin a step, in which backward() does not reach one of the parameters."""
    optimizer.zero_grad()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    net.other.grad = torch.full((N,), value, dtype=torch.float64)


def backward(value):
    zero(value)
    (net.weight * value).sum().backward()


def stepped(value):
    return all(parameter.eq(-value * size).all() for parameter in net.parameters())


def step(what, strike):
    """Rank 0 is struck in its backward() or in its step(), which then goes on with the next call."""

    def turn(place):
        more = False
        loss = (net.weight * 3.0).sum()
        backward(2.0)
        optimizer.step()
        assert stepped(2.0), (what, place)
        zero(3.0)
        if rank or what == "step":
            loss.backward()
        else:
            more, _ = strike(place, loss.backward)
            if net.weight.grad is None:
                raise AssertionError(f"struck at {place}, before there is a gradient")
        if rank == 0 and what == "step":
            more, _ = strike(place, optimizer.step)
        if net.weight.eq(0.0).all():  # else it was struck at the end of step()
            optimizer.step()
        assert stepped(3.0), (what, place, net.weight[0, 0], net.other[0])
        return more

    return turn


def interrupted(*_):
    raise KeyboardInterrupt


if size > 1:
    everywhere(submission(1))
    everywhere(submission(2))
    everywhere(begun_again)
    everywhere(waited("ended", hvd.synchronize))
    everywhere(waited("under way", hvd.synchronize))
    everywhere(waited("polled", until_polled))
    everywhere(result)

    # Ctrl-C cuts a call short, and its handle is lost: its name is free again once the operation has ended.
    signal.signal(signal.SIGALRM, interrupted)
    for how in (
        lambda: hvd.allgather(torch.ones(1), name="cut short"),
        lambda: hvd.allreduce(torch.ones(1), name="cut short", op=hvd.Sum),
        lambda: hvd.synchronize(hvd.allreduce_async(torch.ones(1), name="cut short", op=hvd.Max)),
    ):
        if rank == 0:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                how()
                raise AssertionError("it was not interrupted")
            except KeyboardInterrupt:
                pass
            try:
                how()
                raise AssertionError("it is in flight")
            except ValueError as error:
                assert "same name" in str(error), error
        hvd.barrier()
        if rank:
            how()
        hvd.barrier()
        end()
        how()

    # A step that is waiting for others goes on where it was: the first, in which they agree, and others.
    for value in (4.0, 5.0, 6.0):
        hvd.barrier()
        if rank == 0:
            backward(value)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                optimizer.step()
                raise AssertionError("it was not interrupted")
            except KeyboardInterrupt:
                hvd.barrier()
        else:
            hvd.barrier()
            backward(value)
        optimizer.step()
        assert stepped(value), (value, net.weight[0, 0], net.other[0])

    everywhere(step("backward", struck))
    for what in ("backward", "step") if size == 2 else ():  # more ranks would wait, no more
        everywhere(step(what, struck_in_a_bytecode))

hvd.shutdown()
print(f"rank {rank} of {size}: ok")
