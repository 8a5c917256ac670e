"""Reductions on a GPU: kernels as text in PTX, which the driver compiles. No compiler of CUDA's is needed.

A kernel reads a row of each rank in units of 16 bytes, combines them, and writes the result, which may be
over one of the rows. Integers wrap around. float16 and bfloat16 are computed in float32 and rounded once. A
NaN among the inputs gives NaN, also for minimum and maximum. All of it is as gorun's engine does it.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections.abc import Iterator, Sequence

from gorun import constants
from gorun.gpu.driver import OUT_OF_MEMORY, Device, Failed, Stream

UNIT = 16  # bytes that a thread of the GPU reads at a time
MOST_ROWS = 64
ENTRY = "reduce"
_THREADS, _MOST_BLOCKS = 256, 1024

# How elements are computed with: suffix of instructions, class of registers, elements of a word of 32 bits.
_TYPES = {
    "int8": ("s32", "r", 4), "uint8": ("u32", "r", 4), "int32": ("s32", "r", 1), "uint32": ("u32", "r", 1),
    "int64": ("s64", "d", 0), "uint64": ("u64", "d", 0), "float16": ("f32", "f", 2),
    "bfloat16": ("f32", "f", 2), "float32": ("f32", "f", 1), "float64": ("f64", "g", 0),
}  # fmt: skip
OPS = (constants.SUM, constants.AVERAGE, constants.MIN, constants.MAX, constants.PRODUCT)
# The types and reductions that there are: an average of integers would have to be rounded.
KINDS = [(dtype, op) for dtype in _TYPES for op in OPS if "float" in dtype or op != constants.AVERAGE]
_KINDS = {"r": "b32", "d": "b64", "f": "f32", "g": "f64", "h": "b16", "p": "pred"}
_NAN = {"f32": "0f7FC00000", "f64": "0d7FF8000000000000"}


class _Text:
    """The instructions of a kernel, with registers by class."""

    def __init__(self, dtype: str, op: int, rows: int) -> None:
        self.dtype, self.op, self.rows = dtype, op, rows
        self.suffix, self.kind, self.lanes = _TYPES[dtype]
        self.lines: list[str] = []
        self._numbers = {kind: itertools.count() for kind in _KINDS}

    def new(self, kind: str) -> str:
        return f"%{kind}{next(self._numbers[kind])}"

    def put(self, name: str, *operands: str) -> str:
        """Add an instruction; return its first operand, which is what it sets."""
        self.lines.append(f"\t{name} {', '.join(operands)};")
        return operands[0]

    def to(self, name: str, kind: str, *operands: str) -> str:
        """Add an instruction that sets a new register, and return that."""
        return self.put(name, self.new(kind), *operands)

    def registers(self) -> Iterator[str]:
        for kind, numbers in self._numbers.items():
            count = next(numbers)
            if count:
                yield f"\t.reg .{_KINDS[kind]} %{kind}<{count}>;"

    def load(self, address: str) -> list[str]:
        """Load a unit, and return its elements."""
        if not self.lanes:
            words = [self.new(self.kind) for _ in range(2)]
            self.put(f"ld.global.v2.{_KINDS[self.kind]}", "{" + ", ".join(words) + "}", f"[{address}]")
            return words
        words = [self.new("r") for _ in range(4)]
        self.put("ld.global.v4.b32", "{" + ", ".join(words) + "}", f"[{address}]")
        return [element for word in words for element in self.split(word)]

    def split(self, word: str) -> list[str]:
        """Return the elements of a word."""
        if self.lanes == 4:
            return [self.to(f"bfe.{self.suffix}", "r", word, str(8 * i), "8") for i in range(4)]
        if self.dtype == "float16":
            halves = [self.new("h"), self.new("h")]
            self.put("mov.b32", "{" + ", ".join(halves) + "}", word)
            return [self.to("cvt.f32.f16", "f", half) for half in halves]
        if self.dtype == "bfloat16":
            low, high = self.to("shl.b32", "r", word, "16"), self.to("and.b32", "r", word, "0xffff0000")
            return [self.to("mov.b32", "f", bits) for bits in (low, high)]
        return [self.to("mov.b32", "f", word)] if self.kind == "f" else [word]

    def join(self, elements: Sequence[str]) -> str:
        """Return the word that has these elements."""
        if self.lanes == 4:
            word = elements[0]
            for i in range(1, 4):
                word = self.to("bfi.b32", "r", elements[i], word, str(8 * i), str(32 - 8 * i))
            return word
        if self.dtype == "float16":
            halves = [self.to("cvt.rn.f16.f32", "h", element) for element in elements]
            return self.to("mov.b32", "r", "{" + ", ".join(halves) + "}")
        if self.dtype == "bfloat16":
            low, high = map(self.round, elements)
            low = self.to("shr.u32", "r", low, "16")
            return self.to("or.b32", "r", low, self.to("and.b32", "r", high, "0xffff0000"))
        return self.to("mov.b32", "r", elements[0]) if self.kind == "f" else elements[0]

    def round(self, element: str) -> str:
        """Return a float32's bits, of which the upper half is the nearest bfloat16.

        Only GPUs from sm_80 on have an instruction for it.
        """
        bits = self.to("mov.b32", "r", element)
        odd = self.to("and.b32", "r", self.to("shr.u32", "r", bits, "16"), "1")
        up = self.to("add.u32", "r", self.to("add.u32", "r", bits, odd), "0x7fff")
        isnan = self.to("setp.nan.f32", "p", element, element)
        return self.to("selp.b32", "r", "0x7fc00000", up, isnan)

    def combine(self, a: str, b: str) -> str:
        """Return what a reduction makes of two elements."""
        floats = self.suffix[0] == "f"
        if self.op in (constants.SUM, constants.AVERAGE):
            return self.to(f"add.rn.{self.suffix}" if floats else f"add.{self.suffix}", self.kind, a, b)
        if self.op == constants.PRODUCT:
            return self.to(f"mul.rn.{self.suffix}" if floats else f"mul.lo.{self.suffix}", self.kind, a, b)
        name = "min" if self.op == constants.MIN else "max"
        one = self.to(f"{name}.{self.suffix}", self.kind, a, b)
        if not floats:
            return one
        isnan = self.to(f"setp.nan.{self.suffix}", "p", a, b)  # of either; min and max return the other one
        return self.to(f"selp.{self.suffix}", self.kind, _NAN[self.suffix], one, isnan)

    def body(self) -> None:
        block = self.to("mov.u32", "r", "%ctaid.x")
        threads = self.to("mov.u32", "r", "%ntid.x")
        thread = self.to("cvt.u64.u32", "d", self.to("mov.u32", "r", "%tid.x"))
        unit = self.to("add.u64", "d", self.to("mul.wide.u32", "d", block, threads), thread)
        step = self.to("mul.wide.u32", "d", self.to("mov.u32", "r", "%nctaid.x"), threads)
        units = self.to("ld.param.u64", "d", "[units]")
        to = self.to("ld.param.u64", "d", "[to]")
        rows = [self.to("ld.param.u64", "d", f"[row{i}]") for i in range(self.rows)]
        scale = ""
        if self.op == constants.AVERAGE:
            scale = self.to("ld.param.f64", "g", "[scale]")
            scale = scale if self.suffix == "f64" else self.to("cvt.rn.f32.f64", "f", scale)
        self.lines.append("NEXT:")
        over = self.to("setp.ge.u64", "p", unit, units)
        self.put(f"@{over} bra", "DONE")
        at = self.to("shl.b64", "d", unit, "4")
        sums = self.load(self.to("add.u64", "d", rows[0], at))
        for row in rows[1:]:
            sums = [*map(self.combine, sums, self.load(self.to("add.u64", "d", row, at)))]
        if scale:
            sums = [self.to(f"mul.rn.{self.suffix}", self.kind, element, scale) for element in sums]
        self.store(self.to("add.u64", "d", to, at), sums)
        self.put("add.u64", unit, unit, step)
        self.put("bra", "NEXT")
        self.lines += ["DONE:", "\tret;"]

    def store(self, address: str, elements: Sequence[str]) -> None:
        if not self.lanes:
            self.put(f"st.global.v2.{_KINDS[self.kind]}", f"[{address}]", "{" + ", ".join(elements) + "}")
            return
        words = [self.join(elements[i : i + self.lanes]) for i in range(0, 4 * self.lanes, self.lanes)]
        self.put("st.global.v4.b32", f"[{address}]", "{" + ", ".join(words) + "}")


def text(dtype: str, op: int, rows: int) -> str:
    """Return a kernel that reduces so many rows. An average is a sum and a multiplication."""
    kernel = _Text(dtype, op, rows)
    kernel.body()
    parameters = [".param .u64 to", ".param .u64 units", ".param .f64 scale"]
    parameters += [f".param .u64 row{i}" for i in range(rows)]
    head = [".version 6.0", ".target sm_60", ".address_size 64", f".visible .entry {ENTRY}("]
    head.append(",\n".join("\t" + parameter for parameter in parameters))
    return "\n".join([*head, ")", "{", *kernel.registers(), *kernel.lines, "}", ""])


class Kernel:
    """A reduction that a device has loaded."""

    def __init__(self, device: Device, dtype: str, op: int, rows: int) -> None:
        self._device = device
        self._call = device.driver.call
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        image = text(dtype, op, rows).encode()
        with device.current():
            self._call["cuModuleLoadData"](ctypes.byref(self._module), image)
            self._call["cuModuleGetFunction"](ctypes.byref(self._function), self._module, ENTRY.encode())

    def unload(self) -> None:
        """Let go of it. Nothing may run it any more."""
        with self._device.current():
            self._call["cuModuleUnload"](self._module)

    def launch(self, stream: Stream, to: int, rows: Sequence[int], units: int, scale: float = 1.0) -> None:
        """Have a stream reduce rows of so many units: addresses, multiples of UNIT. scale: of an average."""
        blocks = min(-(-units // _THREADS), _MOST_BLOCKS)
        if not blocks:
            return
        values = [ctypes.c_uint64(to), ctypes.c_uint64(units), ctypes.c_double(scale)]
        values += map(ctypes.c_uint64, rows)
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        with self._device.current():
            self._call["cuLaunchKernel"](
                self._function, blocks, 1, 1, _THREADS, 1, 1, 0, stream.handle, parameters, None
            )


class Wrong(RuntimeError):
    """A GPU does not do what it should."""


class Kernels:
    """The kernels of a device, each loaded once, and proven then."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._kernels: dict[tuple[str, int, int], Kernel | Wrong] = {}  # or why there is none

    def get(self, dtype: str, op: int, rows: int) -> Kernel:
        """Return a kernel for so many rows; Failed or Wrong if there is none."""
        with self._lock:
            found = self._kernels.get((dtype, op, rows))
            if found is None:
                found = self._kernels[dtype, op, rows] = self._load(dtype, op, rows)
            if isinstance(found, Wrong):
                raise Wrong(*found.args)
            return found

    def _load(self, dtype: str, op: int, rows: int) -> Kernel | Wrong:
        """Return a kernel that was proven, or why there is none; Failed if that may change."""
        try:
            kernel = Kernel(self._device, dtype, op, rows)
        except Failed as error:
            if error.code == OUT_OF_MEMORY:
                raise
            return Wrong(str(error))  # the driver would take its time to fail again
        try:
            self._prove(kernel, dtype, op, rows)
        except Wrong as error:
            kernel.unload()
            return error
        except Failed:
            kernel.unload()
            raise
        return kernel

    def _prove(self, kernel: Kernel, dtype: str, op: int, rows: int) -> None:
        given, scale, want = proof(dtype, op, rows)
        host = (ctypes.c_char * (UNIT * rows)).from_buffer_copy(b"".join(given))
        memory = self._device.alloc(UNIT * rows)
        stream = Stream(self._device)
        try:
            stream.copy(memory, ctypes.addressof(host), UNIT * rows)
            kernel.launch(stream, memory, [memory + UNIT * row for row in range(rows)], 1, scale)
            stream.copy(ctypes.addressof(host), memory, UNIT)
            stream.synchronize()
        finally:
            self._device.free(memory)
            stream.close()
        if host.raw[:UNIT] != want:
            raise Wrong(f"the GPU computes wrongly: {dtype}, reduction {op}, {rows} ranks")


_FORMATS = {
    "int8": "b", "uint8": "B", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e",
    "float32": "f", "float64": "d",
}  # fmt: skip


def pack(dtype: str, values: Sequence[int]) -> bytes:
    """Return small whole numbers as a type has them."""
    if dtype == "bfloat16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{_FORMATS[dtype]}", *values)


def proof(dtype: str, op: int, rows: int) -> tuple[list[bytes], float, bytes]:
    """Return rows of a unit, a scale, and what a kernel must make of them: numbers that every type has."""
    count = UNIT // len(pack(dtype, [0]))
    sign = 1 if dtype.startswith("u") else -1
    few = 4 if op == constants.PRODUCT else rows  # rows that have a two

    def has_two(i: int, r: int) -> bool:
        if op not in (constants.MIN, constants.MAX):
            return (i + r // 2) % 2 == 1 and r < few
        return (r if sign < 0 else i + r) % 2 == 1  # so that no row is the result, nor the other one's

    values = [[sign**i * (1 + has_two(i, r)) for i in range(count)] for r in range(rows)]
    scale = 2 if op == constants.AVERAGE else 1
    return (
        [pack(dtype, row) for row in values], float(scale),
        pack(dtype, [scale * _reduced(op, column) for column in zip(*values)]),
    )  # fmt: skip


def _reduced(op: int, column: Sequence[int]) -> int:
    if op == constants.PRODUCT:
        product = 1
        for value in column:
            product *= value
        return product
    return {constants.MIN: min, constants.MAX: max}.get(op, sum)(column)
