"""The arena and the messages, against the golden vectors that the daemon's tests read too."""

from __future__ import annotations

import array
import gc
import mmap
import os
import random
import struct
import sys
import unittest
from types import FrameType

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from gorun import arena, constants, message  # noqa: E402
from gorun.arena import ALIGNMENT, FIRST_REGION, GRANULE, Arena, Block, Region  # noqa: E402
from gorun.errors import Aborted, GorunError, InvalidArgument, Mismatch, Shutdown, error  # noqa: E402
from gorun.session import Session  # noqa: E402

VECTORS = os.path.join(HERE, "..", "..", "..", "testdata", "rankproto.txt")


def vectors() -> list[tuple[str, dict[str, str], bytes]]:
    found: list[tuple[str, dict[str, str], bytes]] = []
    with open(VECTORS, encoding="utf-8") as f:
        for line in f:
            if line.startswith("  "):
                kind, fields, data = found.pop()
                found.append((kind, fields, data + bytes.fromhex(line)))
            elif line.strip() and not line.startswith("#"):
                kind, *words = line.split()
                found.append((kind, dict(w.split("=", 1) for w in words), b""))
    return found


def ints(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(int(x) for x in text.split(","))


class TestMessages(unittest.TestCase):
    def test_from_rank(self) -> None:
        seen = set()
        for kind, f, data in vectors():
            if kind == "hello":
                got = message.hello(int(f["rank"]), int(f["pid"]), bytes.fromhex(f["token"]), int(f["flags"]))
            elif kind == "alloc":
                got = message.alloc(int(f["request"]), int(f["bytes"]))
            elif kind == "release":
                got = message.release(int(f["handle"]))
            elif kind == "env":
                got = message.env(f["name"], f["value"])
            elif kind == "free":
                got = message.free(int(f["region"]))
            elif kind == "bye":
                got = message.bye()
            elif kind == "kept":
                got = message.kept()
            elif kind == "batch":
                got = message.batch()
            elif kind == "submit":
                source = (int(f["in_region"]), int(f["in_offset"]), int(f["in_bytes"]))
                target = (int(f["out_region"]), int(f["out_offset"]), int(f["out_bytes"]))
                numbers = [int(f[k]) for k in ("dtype", "op", "root", "group")]
                scales = (float(f["pre"]), float(f["post"]))
                handle, verb = int(f["handle"]), int(f["kind"])
                got = message.submit(
                    *(handle, verb, f["name"], *numbers, *scales, source, target),
                    *(ints(f["dims"]), ints(f["splits"])),
                )
            else:
                continue
            seen.add(kind)
            self.assertEqual(got.hex(), data.hex(), f"{kind} {f}")
        self.assertEqual(seen, {"hello", "alloc", "release", "free", "bye", "kept", "batch", "env", "submit"})

    def test_from_daemon(self) -> None:
        seen = set()
        for kind, f, data in vectors():
            if kind == "completed":
                got = list(message.completed(bytearray(data), len(data)))
                self.assertEqual(got, list(zip(ints(f["handles"]), ints(f["flags"]))))
                continue
            text = f.get("text", "-").replace("-", "")
            want: message.Message
            if kind == "welcome":
                places = (
                    "rank",
                    "size",
                    "local_rank",
                    "local_size",
                    "cross_rank",
                    "cross_size",
                    "flags",
                    "hosts",
                )
                numbers = [int(f[k]) for k in ("version", "epoch", *places)]
                want = message.Welcome(*numbers, f["job"].encode())  # type: ignore[arg-type]
            elif kind == "region":
                want = message.NewRegion(int(f["request"]), int(f["region"]), int(f["bytes"]))
            elif kind == "fail":
                want = message.Refusal(int(f["number"]), int(f["what"]), int(f["code"]), text)
            elif kind == "complete":
                numbers = [
                    int(f[k])
                    for k in ("handle", "code", "region", "offset", "bytes", "flags", "region_bytes")
                ]
                want = message.Completion(*numbers, ints(f["dims"]), ints(f["rows"]), text)  # type: ignore[arg-type]
            elif kind == "goodbye":
                want = message.Farewell()
            elif kind == "gone":
                want = message.WorldGone(int(f["code"]), text)
            elif kind == "changed":
                want = message.HostsChanged(int(f["flags"]), int(f["stamp"]))
            else:
                continue
            seen.add(kind)
            self.assertEqual(message.decode(memoryview(data)), want)
            self.assertIs(type(message.decode(memoryview(data))), type(want))
            for cut in range(len(data)):
                with self.assertRaises(ValueError, msg=f"{kind} cut to {cut} bytes"):
                    message.decode(memoryview(data)[:cut])
            with self.assertRaises(ValueError):
                message.decode(memoryview(data + b"x"))
        self.assertEqual(len(seen), 7)

    def test_garbage(self) -> None:
        rng = random.Random(7)
        for kind, _, data in vectors():
            for _ in range(300):
                b = bytearray(data)
                for _ in range(rng.randint(1, 4)):
                    b[rng.randrange(4, len(b)) if rng.random() < 0.9 else 0] = rng.choice(
                        (0, 1, 255, rng.randrange(256))
                    )
                try:
                    message.decode(memoryview(b))
                except ValueError:
                    pass  # the only thing it may raise
            del kind

    def test_error_codes(self) -> None:
        kinds = [GorunError, InvalidArgument, Mismatch, Shutdown, Aborted, GorunError]
        self.assertEqual([type(error(code, "x")) for code in range(6)], kinds)
        self.assertIsInstance(error(1, "x"), ValueError)


class FakeMemory:
    """Regions of anonymous memory, up to a limit."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit = limit
        self.regions: dict[int, Region] = {}
        self.numbers = 0

    def grow(self, nbytes: int) -> Region:
        size = (nbytes + GRANULE - 1) // GRANULE * GRANULE
        if sum(r.size for r in self.regions.values()) + size > self.limit:
            raise MemoryError("limit")
        self.numbers += 1
        region = Region(self.numbers, mmap.mmap(-1, size))
        self.regions[region.number] = region
        return region

    def shrink(self, region: Region) -> None:
        del self.regions[region.number]
        region.close()


class TestArena(unittest.TestCase):
    def setUp(self) -> None:
        self.memory = FakeMemory()
        self.arena = Arena(self.memory.grow, self.memory.shrink)

    def test_steady_state_reuses(self) -> None:
        places = set()
        for _ in range(1000):
            blocks = [self.arena.alloc(n) for n in (100, 4096, 1 << 20)]
            places.update((b.region, b.offset) for b in blocks)
            for b in blocks:
                b.free()
        self.assertEqual(len(places), 3)
        self.assertEqual(self.arena.capacity, FIRST_REGION)

    def test_blocks_are_aligned_and_apart(self) -> None:
        rng = random.Random(3)
        live: list[tuple[Block, int]] = []
        for i in range(3000):
            if live and rng.random() < 0.5:
                block, fill = live.pop(rng.randrange(len(live)))
                self.assertEqual(bytes(block.view), bytes([fill]) * block.nbytes)
                block.free()
            else:
                n = rng.choice((0, 1, 63, 64, 65, 1000, 4096, rng.randrange(1, 30000)))
                block = self.arena.alloc(n)
                self.assertEqual((block.nbytes, len(block.view), block.view.format), (n, n, "B"))
                self.assertEqual(block.offset % ALIGNMENT, 0)
                block.view[:] = bytes([i % 251]) * n
                live.append((block, i % 251))
        self.assertEqual(self.arena.capacity, FIRST_REGION)

    def test_neighbours_merge(self) -> None:
        blocks = [self.arena.alloc(FIRST_REGION // 8) for _ in range(8)]
        for i in (3, 1, 5, 7, 0, 2, 6, 4):
            blocks[i].free()
        whole = self.arena.alloc(FIRST_REGION)
        self.assertEqual((whole.offset, self.arena.capacity), (0, FIRST_REGION))

    def test_best_fit(self) -> None:
        sizes = (10 << 20, 1 << 20, 5 << 20, 1 << 20, 47 << 20)  # all of the region
        blocks = [self.arena.alloc(n) for n in sizes]
        blocks[0].free()
        blocks[2].free()
        fitting = self.arena.alloc(4 << 20)
        self.assertEqual(fitting.offset, blocks[2].offset)

    def test_grows_geometrically(self) -> None:
        blocks = [self.arena.alloc(32 << 20) for _ in range(40)]
        self.assertLessEqual(self.memory.numbers, 6)
        self.assertEqual(len({(b.region, b.offset) for b in blocks}), 40)
        big = self.arena.alloc(10 << 30)  # sparse
        self.assertEqual(big.nbytes, 10 << 30)

    def test_limit(self) -> None:
        self.memory.limit = 128 << 20
        a = self.arena.alloc(60 << 20)
        b = self.arena.alloc(60 << 20)
        with self.assertRaises(MemoryError):
            self.arena.alloc(60 << 20)
        a.free()
        b.free()
        c = self.arena.alloc(100 << 20)  # needs a region of its own, so the empty ones go back first
        self.assertEqual(list(self.memory.regions), [c.region])

    def test_less_than_hoped_for(self) -> None:
        self.memory.limit = 80 << 20
        self.arena.alloc(60 << 20)
        self.arena.alloc(10 << 20)  # another 64 MiB are refused, 10 are not
        self.assertEqual(self.arena.capacity, 74 << 20)

    def test_free_twice_and_slices(self) -> None:
        a = self.arena.alloc(256)
        part = a.slice(64, 100)
        part.view[:] = b"x" * 100
        self.assertEqual(
            (bytes(a.view[64:164]), part.region, part.offset), (b"x" * 100, a.region, a.offset + 64)
        )
        part.free()  # does nothing: the block is the owner
        a.free()
        a.free()
        b, c = self.arena.alloc(256), self.arena.alloc(256)
        self.assertNotEqual(b.offset, c.offset)
        for offset, n in ((-1, 1), (0, 257), (256, 1), (0, -1)):
            with self.assertRaises(ValueError):
                b.slice(offset, n)
        with self.assertRaises(ValueError):
            self.arena.alloc(-1)

    def test_interrupted(self) -> None:
        left = 0

        def strike(frame: FrameType, event: str, _: object) -> None:
            nonlocal left
            if event in ("call", "c_return") and frame.f_code.co_filename == arena.__file__:
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt

        rng = random.Random(1)
        live = [self.arena.alloc(64)]
        struck = 0
        for turn in range(3000):
            while len(live) > 100:
                live.pop(rng.randrange(len(live))).free()
            left = turn % 40 + 1  # more places than there are
            sys.setprofile(strike)
            try:
                live.append(self.arena.alloc(rng.choice((64, 200, 1000, 4096)) << rng.randrange(3)))
            except KeyboardInterrupt:
                struck += 1
            finally:
                sys.setprofile(None)
            spans = sorted((b.region, b.offset, b.offset + b.nbytes) for b in live)
            for (region, _, end), (after, start, _) in zip(spans, spans[1:]):
                self.assertTrue(region != after or end <= start, f"turn {turn}: {region} {start} {end}")
        self.assertGreater(struck, 300)
        self.assertEqual(self.arena.capacity, FIRST_REGION)

    def test_close_leaves_arrays_alone(self) -> None:
        block = self.arena.alloc(100)
        array = memoryview(block.view).cast("B")
        array[0] = 7
        self.arena.close()
        block.free()
        gc.collect()
        self.assertEqual(array[0], 7)


class TestLocal(unittest.TestCase):
    """What only a world of one does; the rest is in test_session_world.py."""

    def setUp(self) -> None:
        self.session = Session.connect({})

    def test_poll_is_false_first(self) -> None:
        h = self.session.submit(constants.BARRIER, "b", 0, (), None, None)
        self.assertEqual([self.session.poll(h), self.session.poll(h)], [False, True])
        self.session.wait(h)
        self.assertTrue(self.session.poll(h))
        with self.assertRaises(InvalidArgument):
            self.session.wait(h)

    def scaled(self, dtype: int, data: bytes, factor: float) -> bytes:
        src, dst = self.session.alloc(len(data)), self.session.alloc(len(data))
        src.view[:] = data
        shape = (len(data) // constants.ITEMSIZE[dtype],)
        self.session.wait(
            self.session.submit(constants.ALLREDUCE, "x", dtype, shape, src, dst, prescale=factor)
        )
        self.assertEqual(bytes(src.view), data)
        return bytes(dst.view)

    def test_scale(self) -> None:
        for dtype, code in ((constants.FLOAT32, "f"), (constants.FLOAT64, "d"), (constants.COMPLEX64, "f")):
            got = array.array(
                code, self.scaled(dtype, array.array(code, (1.5, -2.0, 0.0, 4e30)).tobytes(), 0.25)
            )
            self.assertEqual(list(got), list(array.array(code, (0.375, -0.5, 0.0, 1e30))))
        got = array.array("f", self.scaled(constants.FLOAT32, array.array("f", (3e38, -3e38)).tobytes(), 4.0))
        self.assertEqual(list(got), [float("inf"), float("-inf")])
        for dtype, code in ((constants.INT8, "b"), (constants.UINT16, "H"), (constants.INT64, "q")):
            got = array.array(code, self.scaled(dtype, array.array(code, (1, 2, 100)).tobytes(), 0.5))
            self.assertEqual(list(got), [0, 1, 50])
        halves = struct.pack("<4e", 1.5, -2.0, 60000.0, float("inf"))
        self.assertEqual(
            struct.unpack("<4e", self.scaled(constants.FLOAT16, halves, 0.5)), (0.75, -1, 30000, float("inf"))
        )
        self.assertEqual(struct.unpack("<4e", self.scaled(constants.FLOAT16, halves, 2.0))[2], float("inf"))
        # bfloat16 is the upper half of a float32; 1.0078125 × 1.5 = 1.51171875 lies between two of them.
        self.assertEqual(
            self.scaled(constants.BFLOAT16, bytes.fromhex("803f 813f 80ff c07f"), 1.5).hex(),
            "c03fc23f80ffc07f",
        )


if __name__ == "__main__":
    unittest.main()
