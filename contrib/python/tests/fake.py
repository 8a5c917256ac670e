"""A job in one process: every rank is a thread, and the engine a function of NumPy arrays."""

import ctypes
import itertools
import mmap
import threading

import numpy as np

from gorun import basics, constants, errors
from gorun.library import BEGUN, FOLLOWING, memory
from gorun.session import Block, Region, Result, Session

NUMPY = {
    constants.UINT8: "u1", constants.INT8: "i1", constants.UINT16: "u2", constants.INT16: "i2",
    constants.UINT32: "u4", constants.INT32: "i4", constants.UINT64: "u8", constants.INT64: "i8",
    constants.FLOAT16: "f2", constants.FLOAT32: "f4", constants.FLOAT64: "f8", constants.BOOL: "?",
    constants.COMPLEX64: "c8", constants.COMPLEX128: "c16",
}  # fmt: skip
ROWS = constants.ALLGATHER, constants.ALLTOALL, constants.REDUCESCATTER
PATIENCE = 20  # seconds until a wait is called a hang

REDUCE = {
    constants.AVERAGE: np.add, constants.SUM: np.add, constants.MIN: np.minimum,
    constants.MAX: np.maximum, constants.PRODUCT: np.multiply,
}  # fmt: skip


class Engine:
    """What the daemons do: meets the ranks' requests by group and name."""

    def __init__(self, size):
        self.size = size
        self.changed = threading.Condition(threading.RLock())
        self.waiting = {}  # (group, name) → {rank: request}
        self.groups = {0: list(range(size))}
        self.gone = {}  # rank → why nothing can be expected from it
        self.lost = None  # the error that ended the world
        self.log = []  # names, as they were submitted, by rank

    def submit(self, request):
        with self.changed:
            key = request["group"], request["name"]
            peers = self.waiting.setdefault(key, {})
            self.log.append((request["rank"], request["name"]))
            if request["rank"] in peers:
                raise errors.Busy(f"submit {request['name']}: the name is in use")
            peers[request["rank"]] = request
            members = self.groups[request["group"]]
            missing = [rank for rank in members if rank not in peers]
            if not missing:
                del self.waiting[key]
                self.complete([peers[rank] for rank in members])
            elif any(rank in self.gone for rank in missing):
                self.fail(key, errors.Shutdown("a rank left"))
            self.changed.notify_all()

    def leave(self, rank):
        with self.changed:
            self.gone[rank] = True
            for key in list(self.waiting):
                if rank in self.groups[key[0]] and rank not in self.waiting[key]:
                    self.fail(key, errors.Shutdown(f"rank {rank} left"))
            self.changed.notify_all()

    def fail(self, key, error):
        for request in self.waiting.pop(key).values():
            self.refuse(request, error)

    def refuse(self, request, error):
        request["error"] = error
        for follower in request["followers"]:
            self.refuse(follower, error)

    def complete(self, requests):
        try:
            same = ["kind", "dtype", "op", "root", "prescale", "postscale"]
            for field in same:
                values = {request[field] for request in requests}
                if len(values) > 1:
                    raise errors.Mismatch(f"{requests[0]['name']}: ranks gave different {field}: {values}")
            if requests[0]["kind"] in ROWS and not all(r["shape"] for r in requests):
                raise errors.InvalidArgument(f"{requests[0]['name']}: a scalar has no rows")
            ranks = [r["rank"] for r in requests]
            if requests[0]["kind"] == constants.BROADCAST and requests[0]["root"] not in ranks:
                raise errors.InvalidArgument(f"{requests[0]['name']}: the root takes no part")
            ragged = requests[0]["kind"] in (constants.ALLGATHER, constants.ALLTOALL)
            shapes = {r["shape"][1:] if ragged else r["shape"] for r in requests}
            if len(shapes) > 1:
                raise errors.Mismatch(f"{requests[0]['name']}: ranks gave different shapes: {shapes}")
            if requests[0]["kind"] == constants.ALLTOALL:
                for r in requests:
                    rows = r["splits"]
                    if len(rows) != len(requests) or min(rows) < 0 or sum(rows) > r["shape"][0]:
                        raise errors.InvalidArgument(f"{r['name']}: splits {rows} of {r['shape']}")
            run(requests)
        except errors.GorunError as error:
            for request in requests:
                self.refuse(request, error)
        for request in requests:
            for follower in request["followers"]:
                if follower["error"] is None:
                    self.submit(follower)


def reduce(requests):
    head = requests[0]
    kind = np.dtype(NUMPY[head["dtype"]])
    inputs = [r["src"] for r in requests]
    if head["prescale"] != 1.0:
        inputs = [(a * head["prescale"]).astype(kind) for a in inputs]
    total = inputs[0].copy()
    for a in inputs[1:]:
        total = REDUCE[head["op"]](total, a)
    factor = head["postscale"] / (len(requests) if head["op"] == constants.AVERAGE else 1)
    return (total * factor).astype(kind) if factor != 1.0 else total


def run(requests):
    head = requests[0]
    kind = head["kind"]
    for request in requests:
        request["result"] = Result(request["shape"])
    if kind == constants.ALLREDUCE:
        total = reduce(requests)
        for r in requests:
            r["dst"][...] = total
    elif kind == constants.BROADCAST:
        data = next(r["src"] for r in requests if r["rank"] == r["root"]).copy()
        for r in requests:
            r["dst"][...] = data
    elif kind == constants.ALLGATHER:
        inputs = [r["src"] for r in requests]
        rows = tuple(a.shape[0] for a in inputs)
        for r in requests:
            r["result"] = result(np.concatenate(inputs), rows)
    elif kind == constants.ALLTOALL:
        pieces = [np.split(r["src"], np.cumsum(r["splits"])[:-1]) for r in requests]
        for i, r in enumerate(requests):
            mine = [piece[i] for piece in pieces]
            r["result"] = result(np.concatenate(mine), tuple(a.shape[0] for a in mine))
    elif kind == constants.REDUCESCATTER:
        for r, part in zip(requests, np.array_split(reduce(requests), len(requests))):
            r["result"] = result(part, (part.shape[0],))


def result(a, rows):
    return Result(a.shape, rows, memoryview(a.tobytes()), lambda: None)


class FakeSession(Session):
    """One rank's session. Memory is poisoned, so that nothing passes that was not written."""

    def __init__(self, engine, rank):
        self.engine = engine
        self.rank, self.size = rank, engine.size
        self.local_rank, self.local_size = rank, engine.size
        self.cross_rank, self.cross_size = 0, 1
        self.epoch, self.has_belt = 1, 0
        self.requests = {}
        self.numbers = itertools.count(1)
        self.memories, self.regions = {}, {}  # by address: those of blocks that were not freed, and all
        self.told = []  # what news() will say

    def before(self, name):
        """Raise, in a test, what keeps a request from being submitted."""

    def alloc(self, nbytes):
        array = mmap.mmap(-1, max(nbytes, 1))
        array[:] = b"\xab" * len(array)
        place = ctypes.addressof(ctypes.c_char.from_buffer(array))
        self.memories[place] = array
        block = Block((place,), nbytes, self.free, lambda place: self.regions[place])
        self.regions[place] = Region(place, nbytes)
        return block

    def free(self, place):
        region = self.regions.pop(place)
        if region.release is not None:
            region.release()
        del self.memories[place]

    def in_use(self):
        """Count operations in flight and blocks that were not freed."""
        return len(self.requests), len(self.memories)

    def start(self, requests, tickets):
        followers = []
        for request in requests:
            request.check()
        for request, ticket in zip(requests, tickets):
            self.before(request.name)
            options = {
                "op": constants.SUM, "root": 0, "prescale": 1.0, "postscale": 1.0, "group": 0, "splits": None,
                **request.options,
            }  # fmt: skip
            follows = options.pop("follows", 0)
            pieces = options.pop("pieces", (request.source, request.target, request.nbytes))
            if request.target and request.kind not in (constants.ALLREDUCE, constants.BROADCAST):
                raise errors.InvalidArgument("bad request")
            dtype = NUMPY.get(request.dtype, "u1")
            data = b"".join(bytes(memory(at, n)) for at, _, n in zip(*[iter(pieces)] * 3) if at)
            source = np.zeros(request.shape, dtype)
            if data:
                source = np.frombuffer(data, dtype, source.size).reshape(request.shape)
            handle = next(self.numbers)
            self.requests[handle] = one = {
                "rank": self.rank, "kind": request.kind, "name": request.name, "dtype": request.dtype,
                "shape": request.shape, "src": source, "dst": source.copy(), "pieces": pieces, "error": None,
                "result": None, "followers": [] if follows == FOLLOWING else followers, **options,
            }  # fmt: skip
            try:
                if follows == FOLLOWING:
                    followers.append(one)
                else:
                    self.engine.submit(one)
            except BaseException:
                del self.requests[handle]
                raise
            ticket[0], ticket[BEGUN] = handle, 1

    def start_now(self, request, ticket):
        self.start([request], [ticket])
        return False

    def encode(self, request, ticket, now):
        return request, ticket

    def aim(self, encoded, address):
        return False

    def repeat(self, encoded):
        return self.start_now(*encoded)

    def has_slot(self, name):
        return False

    def kept(self):
        pass

    def ended(self, ticket):
        return False

    def ends(self, seconds, more=True):
        return []

    def poll(self, ticket):
        request = self.requests.get(ticket[0])
        return request is None or request["error"] is not None or request["result"] is not None

    def attend(self, ticket, seconds=None):
        with self.engine.changed:
            return self.engine.changed.wait_for(lambda: self.poll(ticket), seconds)

    def lost(self):
        return self.engine.lost

    def wait(self, ticket, copies=True):
        with self.engine.changed:
            if not self.engine.changed.wait_for(lambda: self.poll(ticket), PATIENCE):
                waiting = {name: sorted(peers) for name, peers in self.engine.waiting.items()}
                raise AssertionError(f"rank {self.rank} hangs; submitted so far: {waiting}")
        request = self.requests.pop(ticket[0])
        ticket[0] = 0
        if request["error"] is not None:
            raise request["error"]
        data = memoryview(request["dst"].tobytes())
        for _, target, nbytes in zip(*[iter(request["pieces"])] * 3):
            if target and copies:
                ctypes.memmove(target, bytes(data[:nbytes]), nbytes)
            data = data[nbytes:]
        return request["result"]

    def add_group(self, ranks, number=0):
        """Register a process set: all ranks do so in the same order, and get the same number."""
        with self.engine.changed:
            known = [group for group, members in self.engine.groups.items() if members == list(ranks)]
            group = number or (known[0] if known else max(self.engine.groups) + 1)
            self.engine.groups[group] = list(ranks)
            return group

    def news(self):
        told, self.told = self.told, []
        return told

    def remove_group(self, group):
        pass

    def close(self):
        self.engine.leave(self.rank)
        for region in self.regions.values():
            if region.release is not None:
                region.release()
                region.release = None


class _ThreadState(threading.local):
    world = None
    first_epoch = 0
    shown = True


def run_ranks(size, function, initialized=True):
    """Run function(rank) on every rank of a job; return what it returned, or raise what it raised first."""
    engine = Engine(size)
    outcomes = [None] * size
    failures = []
    local = threading.local()
    saved = basics._state, Session.connect

    def body(rank):
        local.session = lambda: FakeSession(engine, rank)
        try:
            if initialized:
                basics.init()
            outcomes[rank] = function(rank)
        except BaseException as failure:
            failures.append((rank, failure))
        finally:
            basics.shutdown()

    basics._state = _ThreadState()
    Session.connect = staticmethod(lambda: local.session())
    try:
        threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * PATIENCE)
            assert not thread.is_alive(), "a rank hangs"
    finally:
        basics._state, Session.connect = saved
    if failures:
        # The others often fail only because the first did.
        failures.sort(key=lambda item: "left" in str(item[1]))
        raise failures[0][1]
    return outcomes
