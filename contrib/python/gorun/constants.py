"""Numbers that the rank protocol fixes: element types, reductions and kinds of operations."""

from __future__ import annotations

# Element types.
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

ITEMSIZE: dict[int, int] = {
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
}
"""Bytes of one element of each type."""

# Reductions; the first six are numbered as Horovod numbers them.
AVERAGE = 0
SUM = 1
ADASUM = 2
MIN = 3
MAX = 4
PRODUCT = 5
BIT_AND = 6
BIT_OR = 7
BIT_XOR = 8
LOGICAL_AND = 9
LOGICAL_OR = 10
LOGICAL_XOR = 11

# Kinds of operations.
ALLREDUCE = 1
ALLGATHER = 2
BROADCAST = 3
BARRIER = 4
ALLTOALL = 5
REDUCESCATTER = 6
ADD_GROUP = 7
REMOVE_GROUP = 8
DECLARED = 1 << 30  # the first number, of as many, for groups that only their members know of
JOIN = 9
REDUCE = 10
GATHER = 11
SCATTER = 12
SEND = 13
RECV = 14
PEEK = 15

FOLLOWS = (-1,)  # splits of an allreduce that begins when another one has succeeded, and fails with it
LEADS = (-2,)  # of the one that they follow; World.submit() puts the handles in their place

MAX_NDIM = 32
MAX_NAME = 4096
MAX_IN_FLIGHT = 65536
