"""The bindings of CUDA's driver and of NCCL: against the declarations, and over the stand-ins."""

import ctypes
import os
import re
import unittest

import standin_gpu
from standin_gpu import faults

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
        self.assertEqual(numbers["CUDA_ERROR_NOT_READY"], driver.NOT_READY)
        self.assertEqual(numbers["CU_STREAM_CAPTURE_MODE_RELAXED"], driver.CAPTURE_RELAXED)
        self.assertEqual(numbers["CU_STREAM_NON_BLOCKING"], driver.STREAM_NON_BLOCKING)
        self.assertEqual(numbers["CU_EVENT_DISABLE_TIMING"], driver.EVENT_DISABLE_TIMING)

    def test_layouts(self):
        config = nccl.Config
        self.assertEqual([config.magic.offset, config.version.offset, config.blocking.offset], [8, 12, 16])
        self.assertEqual([ctypes.sizeof(t) for t in (nccl.UniqueId, driver.IpcMemHandle)], [128, 64])


class DriverTest(unittest.TestCase):
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
