"""The kernels that reduce on a GPU: what they compute, where a stand-in runs their text."""

import struct
import unittest
from unittest import mock

import standin_gpu
from tests_path import need

np = need("numpy")

from gorun import constants  # noqa: E402
from gorun.gpu import driver, group, kernels, nccl  # noqa: E402


class Test(unittest.TestCase):
    def setUp(self):
        self.device = driver.Device(standin_gpu.driver(), 0)
        self.stream = driver.Stream(self.device)
        self.addCleanup(self.stream.close)

    def reduce(self, dtype, op, rows, scale=1.0, over=None):
        """Return what a kernel makes of byte strings."""
        addresses = [self.device.alloc(len(row)) for row in rows]
        for address, row in zip(addresses, rows):
            self.stream.copy(address, np.frombuffer(row, "u1").ctypes.data, len(row))
        to = addresses[over] if over is not None else self.device.alloc(len(rows[0]))
        kernel = kernels.Kernel(self.device, dtype, op, len(rows))
        kernel.launch(self.stream, to, addresses, len(rows[0]) // kernels.UNIT, scale)
        result = np.empty(len(rows[0]), "u1")
        self.stream.copy(result.ctypes.data, to, len(result))
        self.stream.synchronize()
        for address in {*addresses, to}:
            self.device.free(address)
        return result.tobytes()

    def test_all_types_and_reductions(self):
        self.assertEqual({dtype for dtype, _ in kernels.KINDS}, set(nccl.DATA_TYPES))
        self.assertEqual({op for _, op in kernels.KINDS}, set(group.OPS))
        random = np.random.RandomState(3)
        for dtype, op in kernels.KINDS:
            size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
            for count in (1, 2, 3, 5):
                if "float" in dtype:
                    raw = [random.randn(5 * 16 // size).astype("f8") for _ in range(count)]
                    rows = [from_floats(dtype, row) for row in raw]
                else:
                    rows = [random.bytes(5 * 16) for _ in range(count)]
                scale = 0.3 if op == constants.AVERAGE else 1.0
                with self.subTest(dtype=dtype, op=op, rows=count):
                    got = self.reduce(dtype, op, rows, scale, over=count - 1)
                    self.assertEqual(got, expected(dtype, op, rows, scale))

    def test_more_units_than_threads(self):
        for units in (1, 255, 257, 4 * 1024 * 256 // 1000 * 3):
            rows = [np.arange(4 * units, dtype="i4") * k for k in (1, 7)]
            got = np.frombuffer(self.reduce("int32", constants.SUM, [row.tobytes() for row in rows]), "i4")
            self.assertTrue(np.array_equal(got, rows[0] * 8), units)

    def test_special_values(self):
        nan, inf = float("nan"), float("inf")
        pairs = [(nan, 1), (1, nan), (-0.0, 0.0), (0.0, -0.0), (inf, 1), (-inf, inf), (1e-7, 3)]
        pairs.append((65504, 65504))
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            rows = [from_floats(dtype, np.array([pair[i] for pair in pairs])) for i in (0, 1)]
            for op in (constants.SUM, constants.MIN, constants.MAX, constants.PRODUCT):
                with self.subTest(dtype=dtype, op=op), np.errstate(all="ignore"):
                    got, want = to_floats(dtype, self.reduce(dtype, op, rows)), []
                    for a, b in zip(to_floats(dtype, rows[0]), to_floats(dtype, rows[1])):
                        want.append(number(op, a, b))
                    want = to_floats(dtype, from_floats(dtype, np.array(want)))
                    self.assertEqual([*map(repr, got)], [*map(repr, want)])

    def test_proofs(self):
        for dtype, op in kernels.KINDS:
            for count in (1, 2, 3, 8, kernels.MOST_ROWS):
                rows, scale, want = kernels.proof(dtype, op, count)
                with self.subTest(dtype=dtype, op=op, rows=count):
                    self.assertEqual(self.reduce(dtype, op, rows, scale), want)
                    self.assertTrue(count == 1 or want not in rows)
                    largest = kernels.proof(dtype, constants.MAX, count)[2]
                    self.assertTrue(count == 1 or op != constants.MIN or want != largest)

    def test_failures_are_kept(self):
        """A kernel that does not load, or that computes wrongly, is tried once."""
        text = kernels.text("float32", constants.SUM, 2)
        product = text.replace("add.rn", "mul.rn")
        for wrong, why in ("x", "a PTX JIT compilation failed"), (product, "computes wrongly"):
            own = kernels.Kernels(self.device)
            with mock.patch.object(kernels, "text", side_effect=[wrong]), mock.patch.object(
                kernels.Kernel, "unload", autospec=True, side_effect=kernels.Kernel.unload
            ) as unload:
                for _ in range(2):
                    with self.assertRaisesRegex(kernels.Wrong, why):
                        own.get("float32", constants.SUM, 2)
            self.assertEqual(unload.call_count, int(wrong != "x"))

    def test_other_text_is_refused(self):
        text = kernels.text("float32", constants.SUM, 2)
        for wrong in (text.replace("add.rn.f32", "sub.f32"), text.replace("[units]", "[unit]"), "x"):
            with mock.patch.object(kernels, "text", lambda *_, wrong=wrong: wrong):
                with self.assertRaisesRegex(driver.Failed, "cuModuleLoadData: a PTX JIT compilation failed"):
                    kernels.Kernel(self.device, "float32", constants.SUM, 2)


def from_floats(dtype, values):
    """Return numbers as a type has them, rounded to nearest even."""
    if dtype != "bfloat16":
        return values.astype(dtype).tobytes()
    bits = values.astype("f4").view("u4").astype("u8")
    up = np.where(np.isnan(values), 0x7FC00000, bits + 0x7FFF + (bits >> 16 & 1))
    return (up >> 16).astype("u2").tobytes()


def to_floats(dtype, raw):
    if dtype != "bfloat16":
        return np.frombuffer(raw, dtype)
    return (np.frombuffer(raw, "u2").astype("u4") << 16).view("f4")


def expected(dtype, op, rows, scale):
    """Return what gorun's engine makes of rows: halves in float32, rounded once; integers wrap around."""
    work = np.float32 if dtype in ("float16", "bfloat16") else np.dtype(dtype).type
    values = [to_floats(dtype, row).astype(work, copy=False) for row in rows]
    total = values[0]
    for value in values[1:]:
        total = {
            constants.MIN: np.minimum, constants.MAX: np.maximum, constants.PRODUCT: np.multiply
        }.get(op, np.add)(total, value)  # fmt: skip
    if scale != 1.0:
        total = total * work(scale)
    return from_floats(dtype, total) if "float" in dtype else total.tobytes()


def number(op, a, b):
    if op in (constants.MIN, constants.MAX):
        if a != a or b != b:
            return float("nan")
        if a == b:  # the minimum of -0 and 0 is -0
            return a if (struct.pack("d", a)[7] > 127) == (op == constants.MIN) else b
        return min(a, b) if op == constants.MIN else max(a, b)
    return a + b if op == constants.SUM else a * b
