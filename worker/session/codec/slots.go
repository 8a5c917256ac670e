package codec

// The memory of shared-memory slots begins with a line for each rank, by its place: its number on the host. A slot has
// a line for each rank, which begins with the rank's word, and two buffers for each; wide slots and those on the belt
// have lines alone. After SlotsBytes comes the belt, which all slots on it have in common: an area for each rank.
const (
	SlotLine = 64 // bytes, a cache line

	// In the line of a rank.
	SlotLeft     = 0 // u32: why the rank will not come to a slot again; 0 if it may
	SlotAsleep   = 4 // u32: the rank wants to be woken
	SlotDoorbell = 8 // the length of its doorbell's name, and the name

	// In a rank's line of a slot, after its word. Only wide slots have more than the first.
	SlotDone      = 8 // u64: the use that it is done with
	WideIn        = 16
	WideOut       = 20
	WideInOffset  = 24
	WideOutOffset = 32

	// Values of SlotLeft.
	RankLeft  = 1 // the rank has left
	WorldGone = 2 // the world has ended; GONE has the reason

	// In the area of a rank of the belt.
	BeltBroken  = 0                                // u32: why the rank has closed the belt for good; 0 if it has not
	BeltFilled  = SlotLine                         // u64: parts that the rank has put there, of all uses
	BeltReduced = BeltFilled + 8                   // u64: parts of which its share is reduced
	BeltBuffers = 4096                             // parts that the rank has put there
	BeltResults = BeltBuffers + BeltDepth*BeltPart // its shares, reduced

	// Values of BeltBroken.
	BeltLeft   = 1 // the rank gave up in the middle of a tensor
	BeltFailed = 2 // the rank gave up because another one had

	// Added to the offset of a slot in COMPLETE.
	WideSlot = 1 // it is a wide one
	BeltSlot = 2 // it is one on the belt
)

// Limits of slots. They bound what ranks can make the daemon keep: the memory of a slot is not used again.
const (
	MaxSlotRanks = 16
	MaxSlotBytes = 64 << 10 // of a tensor
	MaxSlots     = 4096
	SlotsBytes   = 32 << 20 // of shared memory, without the belt; what is not used costs nothing
	MaxDoorbell  = 32       // bytes of the name of a doorbell

	// Below this, two meetings cost more than reading every tensor whole, which is what ranks do in a plain slot.
	MinWideBytes = 2 << 10
	// Above this the hand-overs to and from the daemon no longer show; where ranks outnumber CPUs they do not long
	// before.
	MaxWideBytes  = 32 << 20
	MaxCrowdBytes = 4 << 20

	// Parts are so long that ranks seldom wait for each other, and those on the belt stay in the caches.
	MaxBeltBytes = 1 << 30   // of a tensor
	BeltPart     = 512 << 10 // of a part
	BeltDepth    = 3
	BeltShare    = BeltPart / 2                      // of a share at most: there are two ranks or more
	BeltArea     = BeltResults + BeltDepth*BeltShare // of a rank
)

// SlotStride returns the distance of buffers of n bytes in a slot.
func SlotStride(n int) int { return (n + SlotLine - 1) &^ (SlotLine - 1) }
