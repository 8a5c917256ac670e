package codec

// The memory of shared-memory slots begins with a line for each rank, by its place: its number on the host. A slot has
// a line for each rank, which begins with the rank's word, and two buffers for each; a wide slot has lines alone.
const (
	SlotLine = 64 // bytes, a cache line

	// In the line of a rank.
	SlotLeft     = 0 // u32: the rank will not come to a slot again, because
	SlotAsleep   = 4 // u32: the rank wants to be woken
	SlotDoorbell = 8 // the length of its doorbell's name, and the name

	// In the line of a rank of a slot, after its word. All but the first are in the lines of wide slots alone.
	SlotDone      = 8 // u64: the use that it is done with
	WideIn        = 16
	WideOut       = 20
	WideInOffset  = 24
	WideOutOffset = 32

	// Values of SlotLeft.
	RankLeft  = 1 // it has left, or
	WorldGone = 2 // the world has ended, and GONE has the reason

	WideSlot = 1 // added to the offset of a slot in COMPLETE: it is a wide one
)

// Limits of slots. They bound what ranks can make the daemon keep: the memory of a slot is not used again.
const (
	MaxSlotRanks = 16
	MaxSlotBytes = 64 << 10 // of a tensor
	MaxSlots     = 4096
	SlotsBytes   = 32 << 20 // of shared memory; what is not used costs nothing
	MaxDoorbell  = 32       // bytes of the name of a doorbell

	// Below this, two meetings cost more than reading every tensor whole, which is what ranks do in a plain slot.
	MinWideBytes = 2 << 10
	// Above this the hand-overs to and from the daemon no longer show; where ranks outnumber CPUs they do not long
	// before.
	MaxWideBytes  = 32 << 20
	MaxCrowdBytes = 4 << 20
)

// SlotStride returns the distance of buffers of n bytes in a slot.
func SlotStride(n int) int { return (n + SlotLine - 1) &^ (SlotLine - 1) }
