"""What is where in the memory of slots, and their limits."""

# Written by go generate ./worker/session/codec.
# begin table: slots
LINE = 64  # bytes of a cache line
RANK_LEFT = 1  # in a rank's line: the rank has left
WORLD_GONE = 2  # in a rank's line: the world has ended
WIDE = 1  # added to the offset of a slot: it is a wide one
ON_BELT = 2  # added to the offset of a slot: it is on the belt
MAX_SLOTS = 4096  # names that have a slot
MAX_SLOT_RANKS = 16  # ranks of a host that has slots
MAX_SLOT_BYTES = 65536  # bytes of a tensor in a slot
MAX_WIDE_BYTES = 33554432  # bytes of a tensor in a wide slot
MAX_CROWD_BYTES = 4194304  # the same, if ranks outnumber CPUs
BELT = 33554432  # offset of the belt in the memory of slots
MAX_BELT_BYTES = 1073741824  # bytes of a tensor in a slot on the belt
BELT_PART = 524288  # bytes of a part of a tensor on the belt
BELT_DEPTH = 3  # parts in the area of a rank
BELT_AREA = 2363392  # bytes of the area of a rank
BELT_LEFT = 1  # at the start of an area: the rank has given up
BELT_FAILED = 2  # at the start of an area: it has given up because another rank had
BELT_FILLED = 64  # offset in an area: number of parts that the rank has put there
BELT_REDUCED = 72  # offset in an area: number of parts whose share the rank has reduced
BELT_BUFFERS = 4096  # offset in an area: the parts
BELT_RESULTS = 1576960  # offset in an area: the reduced shares
BELT_SHARE = 262144  # bytes of a share at most
MAX_DOORBELL = 32  # bytes of the name of a doorbell
# end table
