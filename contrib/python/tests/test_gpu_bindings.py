"""The bindings of CUDA's driver and of NCCL: against the declarations, and over the stand-ins."""

import ctypes
import os
import re
import subprocess
import sys
import time
import unittest

import standin_gpu
from standin_gpu import faults, in_threads

from gorun.gpu import driver, nccl

# What a parameter of a C function is for ctypes.
PARAMETERS = {
    "unsigned int": ctypes.c_uint, "int": ctypes.c_int, "size_t": ctypes.c_size_t, "CUdevice": ctypes.c_int,
    "CUdeviceptr": ctypes.c_uint64, "CUcontext": ctypes.c_void_p, "CUstream": ctypes.c_void_p,
    "CUevent": ctypes.c_void_p, "cudaStream_t": ctypes.c_void_p, "ncclComm_t": ctypes.c_void_p,
    "ncclDataType_t": ctypes.c_int, "ncclRedOp_t": ctypes.c_int, "ncclUniqueId": nccl.UniqueId,
    "CUipcMemHandle": driver.IpcMemHandle, "CUuuid": driver.Uuid, "ncclConfig_t": nccl.Config,
    "ncclResult_t": ctypes.c_int, "CUstreamCaptureStatus": ctypes.c_int,
    "CUstreamCaptureMode": ctypes.c_int, "CUmodule": ctypes.c_void_p, "CUfunction": ctypes.c_void_p,
    "void *": ctypes.c_void_p,
}  # fmt: skip


def declarations():
    with open(os.path.join(standin_gpu.SOURCES, "api.h")) as file:
        text = re.sub(r"//.*|#.*", "", file.read())
    return text


def parameter(text):
    text = text.replace("const ", "").strip()
    base, star, _ = text.rpartition("*")
    kind = (base if star else text.rpartition(" ")[0]).strip()
    if not star:
        return PARAMETERS[kind]
    if kind == "void":
        return ctypes.c_void_p
    return ctypes.c_char_p if kind == "char" else ctypes.POINTER(PARAMETERS[kind])


class DeclarationsTest(unittest.TestCase):
    def test_functions(self):
        found = dict(re.findall(r"^(?:CUresult|ncclResult_t) (\w+)\(([^)]*)\);", declarations(), re.M))
        for name, arguments in {**driver.SIGNATURES, **nccl.SIGNATURES}.items():
            declared = [] if found[name] == "void" else [*map(parameter, found[name].split(","))]
            self.assertEqual(list(arguments), declared, name)

    def test_numbers(self):
        numbers = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", declarations())}
        for name, value in nccl.DATA_TYPES.items():
            self.assertEqual(numbers["nccl" + name.capitalize()], value)
        for name in ("Sum", "Prod", "Max", "Min", "Avg"):
            self.assertEqual(numbers["nccl" + name], getattr(nccl, name.upper()))
        self.assertEqual(numbers["ncclInProgress"], nccl.IN_PROGRESS)
        self.assertEqual(numbers["ncclInvalidUsage"], nccl.INVALID_USAGE)
        self.assertEqual(numbers["CUDA_ERROR_NOT_READY"], driver.NOT_READY)
        self.assertEqual(numbers["CU_STREAM_CAPTURE_MODE_RELAXED"], driver.CAPTURE_RELAXED)
        self.assertEqual(numbers["CU_STREAM_NON_BLOCKING"], driver.STREAM_NON_BLOCKING)
        self.assertEqual(numbers["CU_EVENT_DISABLE_TIMING"], driver.EVENT_DISABLE_TIMING)

    def test_layouts(self):
        config = nccl.Config
        self.assertEqual([config.magic.offset, config.version.offset, config.blocking.offset], [8, 12, 16])
        self.assertEqual([ctypes.sizeof(t) for t in (nccl.UniqueId, driver.IpcMemHandle)], [128, 64])


class DriverTest(unittest.TestCase):
    def test_devices(self):
        cuda = standin_gpu.driver()
        self.assertEqual((cuda.count(), cuda.version()), (8, 12080))
        self.assertEqual(cuda.uuid(3), "00000000-0000-0000-0000-000000000003")
        self.assertTrue(cuda.reaches(0, 1))
        with faults(nopeer=""):
            self.assertFalse(cuda.reaches(0, 1))
        with self.assertRaisesRegex(driver.Failed, "invalid device ordinal"):
            driver.Device(cuda, 8)

    def test_streams_and_events(self):
        device = driver.Device(standin_gpu.driver(), 0)
        source, target = ctypes.create_string_buffer(b"abc", 8), ctypes.create_string_buffer(8)
        memory = device.alloc(8)
        one, other, event = driver.Stream(device), driver.Stream(device), driver.Event(device)
        with faults(hold="") as make:
            one.copy(memory, ctypes.addressof(source), 8)
            event.record(one.handle)
            self.assertFalse(event.over())
            other.wait(event)
            other.copy(ctypes.addressof(target), memory, 8)
            self.assertEqual(target.value, b"")
            make(hold=None)
            other.synchronize()
            self.assertTrue(event.over())
        self.assertEqual(target.value, b"abc")
        one.close(), other.close(), event.close()
        device.free(memory)
        with self.assertRaises(driver.Failed):
            device.free(memory)

    def test_relax(self):
        """What a thread sets holds for itself alone."""
        cuda = standin_gpu.driver()

        def mode_after(*calls):
            for call in calls:
                call()
            mode = ctypes.c_int(0)
            cuda.call["cuThreadExchangeStreamCaptureMode"](ctypes.byref(mode))
            return mode.value

        modes = in_threads(2, lambda rank: mode_after(*[cuda.relax] * rank))
        self.assertEqual(modes, [0, driver.CAPTURE_RELAXED])

    def test_relaxed(self):
        """A thread may do more for a while, where another one captures; then it may not again."""
        cuda = standin_gpu.driver()
        device = driver.Device(cuda, 0)
        with faults(elsewhere=""):
            with cuda.relaxed():
                device.free(device.alloc(8))
            with self.assertRaisesRegex(driver.Failed, "not permitted when stream is capturing"):
                device.alloc(8)

    def test_pin(self):
        device = driver.Device(standin_gpu.driver(), 0)
        memory = ctypes.create_string_buffer(64)
        device.pin(ctypes.addressof(memory), 64)
        with self.assertRaises(driver.Failed):
            device.pin(ctypes.addressof(memory), 64)
        device.unpin(ctypes.addressof(memory))
        with faults(nopin=""), self.assertRaisesRegex(driver.Failed, "not supported"):
            device.pin(ctypes.addressof(memory), 64)

    def test_shared_memory(self):
        device = driver.Device(standin_gpu.driver(), 0)
        memory = device.alloc(8)
        ctypes.memmove(memory, b"shared!\0", 8)
        handle = device.share(memory)
        program = (
            "import ctypes, sys; from gorun.gpu import driver\n"
            "device = driver.Device(driver.Driver(sys.argv[1]), 0)\n"
            "print(ctypes.string_at(device.open(bytes.fromhex(sys.argv[2]))).decode())"
        )
        library = os.path.join(standin_gpu.libraries(), "libcuda.so.1")
        other = subprocess.run(
            [sys.executable, "-c", program, library, handle.hex()], stdout=subprocess.PIPE, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        self.assertEqual(other.stdout, b"shared!\n")
        device.free(memory)


def settle(library, comm, limit=20):
    until = time.monotonic() + limit
    while library.state(comm) == nccl.IN_PROGRESS:
        assert time.monotonic() < until, "still in progress"
        time.sleep(0.001)
    return library.state(comm)


class NcclTest(unittest.TestCase):
    def world(self, size, body, devices=None):
        library = standin_gpu.nccl()
        unique = library.unique_id()

        def run(rank):
            device = driver.Device(standin_gpu.driver(), devices[rank] if devices else rank)
            with device.current():
                comm = library.begin(unique, rank, size)
                stream = driver.Stream(device)
                try:
                    if settle(library, comm) != nccl.SUCCESS:
                        return library.state(comm)
                    return body(library, comm, stream, rank)
                finally:
                    library.call["ncclCommAbort"](comm)
                    stream.close()

        return in_threads(size, run)

    def run_op(self, size, name, count_in, count_out, kind, *more):
        """Call one function on floats 1, 2, 3 … times (rank+1); return each rank's output."""

        def body(library, comm, stream, rank):
            source = (ctypes.c_float * count_in)(*[(i + 1) * (rank + 1) for i in range(count_in)])
            target = (ctypes.c_float * count_out)()
            count = {"ncclReduceScatter": count_out}.get(name, count_in)
            addresses = ctypes.addressof(source), ctypes.addressof(target)
            library.call[name](*addresses, count, nccl.DATA_TYPES["float32"], *more, comm, stream.handle)
            self.assertEqual(settle(library, comm), nccl.SUCCESS)
            stream.synchronize()
            return list(target)

        return self.world(size, body)

    def test_operations(self):
        got = self.run_op(3, "ncclAllReduce", 2, 2, 7, nccl.SUM)
        self.assertEqual(got, [[6, 12]] * 3)
        self.assertEqual(self.run_op(2, "ncclAllReduce", 2, 2, 7, nccl.AVG), [[1.5, 3]] * 2)
        self.assertEqual(self.run_op(2, "ncclAllReduce", 2, 2, 7, nccl.MAX), [[2, 4]] * 2)
        self.assertEqual(self.run_op(2, "ncclAllReduce", 2, 2, 7, nccl.MIN), [[1, 2]] * 2)
        self.assertEqual(self.run_op(2, "ncclAllReduce", 2, 2, 7, nccl.PROD), [[2, 8]] * 2)
        self.assertEqual(self.run_op(2, "ncclReduce", 2, 2, 7, nccl.SUM, 1), [[0, 0], [3, 6]])
        self.assertEqual(self.run_op(2, "ncclBroadcast", 2, 2, 7, 1), [[2, 4]] * 2)
        self.assertEqual(self.run_op(2, "ncclAllGather", 2, 4, 7), [[1, 2, 2, 4]] * 2)
        self.assertEqual(self.run_op(2, "ncclReduceScatter", 4, 2, 7, nccl.SUM), [[3, 6], [9, 12]])

    def test_send_and_receive(self):
        def body(library, comm, stream, rank):
            source, target = (ctypes.c_int * 2)(rank, 7), (ctypes.c_int * 2)()
            library.call["ncclGroupStart"]()
            for name, memory in (("ncclSend", source), ("ncclRecv", target)):
                library.call[name](ctypes.addressof(memory), 2, 2, 1 - rank, comm, stream.handle)
            library.call["ncclGroupEnd"]()
            self.assertEqual(settle(library, comm), nccl.SUCCESS)
            stream.synchronize()
            return list(target)

        self.assertEqual(self.world(2, body), [[1, 7], [0, 7]])

    def test_duplicate_device(self):
        got = self.world(2, None, devices=[1, 1])
        self.assertEqual(got, [nccl.INVALID_USAGE] * 2)
        os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        try:
            self.assertEqual(self.world(2, lambda *_: "fine", devices=[1, 1]), ["fine"] * 2)
        finally:
            del os.environ["NCCL_MULTI_RANK_GPU_ENABLE"]

    def test_asynchronous_error(self):
        def body(library, comm, stream, rank):
            memory = ctypes.c_float()
            address = ctypes.addressof(memory)
            library.call["ncclAllReduce"](address, address, 1, 7, nccl.SUM, comm, stream.handle)
            until = time.monotonic() + 20
            while library.state(comm) in (nccl.SUCCESS, nccl.IN_PROGRESS) and time.monotonic() < until:
                time.sleep(0.001)
            return library.state(comm)

        with faults(asyncerror=6):
            self.assertEqual(self.world(2, body), [6, 6])
        # Without that fault, a peer that is gone makes the same error.
        self.assertEqual(self.world(2, lambda *args: body(*args) if args[-1] == 0 else "gone"), [6, "gone"])

    def test_hang_ends_by_abort(self):
        def body(library, comm, stream, rank):
            memory = ctypes.c_float()
            address = ctypes.addressof(memory)
            library.call["ncclAllReduce"](address, address, 1, 7, nccl.SUM, comm, stream.handle)
            self.assertEqual(settle(library, comm), nccl.SUCCESS)
            done = driver.Event(driver.Device(standin_gpu.driver(), rank))
            done.record(stream.handle)
            over = done.over()
            done.close()
            return over

        with faults(hang=""):
            self.assertEqual(self.world(2, body), [False, False])

    def test_hang_of_setup_ends_by_abort(self):
        library = standin_gpu.nccl()
        with driver.Device(standin_gpu.driver(), 0).current(), faults(hanginit=""):
            comm = library.begin(library.unique_id(), 0, 2)
            self.assertEqual(library.state(comm), nccl.IN_PROGRESS)
            library.call["ncclCommAbort"](comm)


if __name__ == "__main__":
    unittest.main()
