"""Numbers that the rank protocol fixes: element types, reductions and kinds of operations.

What is between "begin table" and "end table" is written by go generate ./worker/session/codec.
"""

from __future__ import annotations

# Element types.
# begin table: elements
UINT8 = 1
INT8 = 2
UINT16 = 3
INT16 = 4
UINT32 = 5
INT32 = 6
UINT64 = 7
INT64 = 8
FLOAT16 = 9
BFLOAT16 = 10
FLOAT32 = 11
FLOAT64 = 12
BOOL = 13
COMPLEX64 = 14
COMPLEX128 = 15
FLOAT8_E4M3FN = 16
FLOAT8_E4M3FNUZ = 17
FLOAT8_E5M2 = 18
FLOAT8_E5M2FNUZ = 19
FLOAT8_E8M0FNU = 20
COMPLEX32 = 21
# end table

ITEMSIZE: dict[int, int] = {
    # begin table: elements bytes
    UINT8: 1,
    INT8: 1,
    UINT16: 2,
    INT16: 2,
    UINT32: 4,
    INT32: 4,
    UINT64: 8,
    INT64: 8,
    FLOAT16: 2,
    BFLOAT16: 2,
    FLOAT32: 4,
    FLOAT64: 8,
    BOOL: 1,
    COMPLEX64: 8,
    COMPLEX128: 16,
    FLOAT8_E4M3FN: 1,
    FLOAT8_E4M3FNUZ: 1,
    FLOAT8_E5M2: 1,
    FLOAT8_E5M2FNUZ: 1,
    FLOAT8_E8M0FNU: 1,
    COMPLEX32: 4,
    # end table
}
"""Bytes of one element of each type."""

# Reductions; the first six are numbered as Horovod numbers them.
# begin table: reductions
AVERAGE = 0
SUM = 1
ADASUM = 2  # of allreduce, for floats
MIN = 3
MAX = 4
PRODUCT = 5
BIT_AND = 6  # these six for integers and bool
BIT_OR = 7
BIT_XOR = 8
LOGICAL_AND = 9
LOGICAL_OR = 10
LOGICAL_XOR = 11
# end table

# Kinds of operations.
# begin table: kinds
ALLREDUCE = 1
ALLGATHER = 2
BROADCAST = 3
BARRIER = 4
ALLTOALL = 5
REDUCESCATTER = 6
ADD_GROUP = 7
REMOVE_GROUP = 8
JOIN = 9
REDUCE = 10
GATHER = 11
SCATTER = 12
SEND = 13
RECV = 14
PEEK = 15
# end table

DECLARED = 1 << 30  # the first of as many numbers for groups that only their members know

# How sums of floats travel between hosts.
CODINGS = {
    # begin table: codings texts
    "default": 0,
    "none": 1,
    "fp16": 2,
    "bf16": 3,
    "int8": 4,
    # end table
}

# begin table: limits
MAX_MESSAGE = 65536  # bytes of a message from a rank
MAX_ANSWER = 262144  # bytes of a message from the daemon: numbers for 16384 ranks
MAX_NAME = 4096  # bytes of a name
MAX_DIMS = 32  # dimensions of a tensor
MAX_IN_FLIGHT = 65536  # operations of a rank
# end table

# Why an operation has failed.
# begin table: codes
OK = 0
INVALID = 1  # this rank's own arguments, or a function out of turn
MISMATCH = 2  # ranks submitted different things under one name
SHUTDOWN = 3  # a rank left before it contributed
ABORTED = 4  # the world has ended: a host died
INTERNAL = 5
# end table
