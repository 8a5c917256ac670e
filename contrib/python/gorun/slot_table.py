"""What is where in the memory of slots, and their limits."""

# Written by go generate ./worker/session/codec.
# begin table: slots
LINE = 64  # bytes of a cache line
RANK_LEFT = 1  # in a rank's line: it has left, or
WORLD_GONE = 2  # the world has ended
WIDE = 1  # added to the place of a slot: it is a wide one
ON_BELT = 2  # added to it: it is one on the belt
MAX_SLOTS = 4096  # names that have one
MAX_SLOT_RANKS = 16  # ranks of a host that has slots
MAX_SLOT_BYTES = 65536  # of a tensor
MAX_WIDE_BYTES = 33554432  # of a tensor in a wide slot, or, if ranks outnumber CPUs,
MAX_CROWD_BYTES = 4194304
BELT = 33554432  # where the belt begins
MAX_BELT_BYTES = 1073741824  # of a tensor in a slot on the belt
BELT_PART = 524288  # of a part of it
BELT_DEPTH = 3  # parts in the area of a rank
BELT_AREA = 2363392  # bytes of that
BELT_LEFT = 1  # where it begins: the rank has given up, or
BELT_FAILED = 2  # had to because of another one
BELT_FILLED = 64  # where it has the number of parts that are there,
BELT_REDUCED = 72  # of those whose share is reduced,
BELT_BUFFERS = 4096  # the parts, and its shares,
BELT_RESULTS = 1576960
BELT_SHARE = 262144  # of so many bytes at most
MAX_DOORBELL = 32  # bytes of the name of a doorbell
# end table
