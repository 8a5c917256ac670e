package verbs

import (
	"errors"
	"net/netip"
)

// Provider is what the package needs of a library for RDMA.
type Provider interface {
	// Ports returns the ports of all devices as they are now. Indices of GIDs change, so nothing of it is kept.
	Ports() ([]Port, error)
	// Open returns a queue pair in the state INIT with registered memory.
	Open(at Place, size Size) (Pair, error)
}

// Port is a port of an RDMA device.
type Port struct {
	Device   string
	Number   int
	Active   bool
	Ethernet bool // RoCE, where GIDs follow from addresses of the network interface
	MTU      int  // active, in bytes: 256 to 4096
	LID      uint16
	GIDs     []GID
}

// GID is an entry of a port's table.
type GID struct {
	Index int
	Value [16]byte
	RoCE2 bool // RoCE v2, which routers pass on; false for v1 and InfiniBand
}

// Place is where a queue pair is opened.
type Place struct {
	Port
	GID GID
}

// Size is what a queue pair is made for.
type Size struct {
	Ring  int // bytes of each of its two rings
	Depth int // messages in flight in each direction
}

// End is what a side has to know of the other's queue pair.
type End struct {
	Number uint32 // 24 bits
	PSN    uint32 // 24 bits: of the first packet it sends
	LID    uint16
	MTU    int
	GID    [16]byte
	Ring   uint64 // address of the ring that the peer writes to
	Key    uint32 // rkey of the ring
}

// Pair is a queue pair with a completion queue, a completion channel and two rings of registered memory. One goroutine
// at a time may post, one may poll and wait; Close is called when none does any more.
type Pair interface {
	// End describes this side. PSN is for the caller to choose.
	End() End
	// Rings returns the memory to send from and the memory that the peer writes to.
	Rings() (send, receive []byte)
	// Connect takes the pair through the states RTR and RTS. Receives must have been posted.
	Connect(psn uint32, peer End, tuning Tuning) error
	// Receive posts n receives.
	Receive(n int) error
	// Write posts a write of length bytes at an offset of the send ring to the same offset of the peer's ring, with
	// immediate data.
	Write(offset, length int, imm uint32) error
	// Poll returns completions, in the order of each queue.
	Poll(into []Completion) (int, error)
	// Wait returns when there may be completions that Poll has not returned, or with an error after Wake. It first asks
	// for notification and returns at once if completions may have come before.
	Wait() error
	// Wake ends Wait, now and in future. Any goroutine may call it.
	Wake()
	// Close destroys the pair, then frees its memory.
	Close() error
}

// Tuning are the attributes of a connected queue pair.
type Tuning struct {
	// Timeout is how long the device waits for an acknowledgement: 4.096 µs times two to the power of it. Retry is how
	// often it repeats what was not acknowledged.
	Timeout, Retry uint8
	TrafficClass   uint8
	HopLimit       uint8
}

// DefaultTuning has devices give up after half a second, sooner than the link replaces a stream that makes no progress.
// A machine that is paused for longer loses its queue pairs, not its data.
var DefaultTuning = Tuning{Timeout: 14, Retry: 7, HopLimit: 64}

// Completion is an entry of a completion queue.
type Completion struct {
	Status  uint32 // 0 for success
	Receive bool
	Bytes   int    // of a receive
	Imm     uint32 // of a receive
}

// errNoPort means that no port is fit for a connection.
var errNoPort = errors.New("no RDMA port has the address of the connection")

// choose returns the place for a queue pair beside a TCP connection from the given address. On Ethernet that is the port
// with a GID made of the address, best with RoCE v2, so that the queue pair takes the same network as the connection;
// InfiniBand has no such GIDs, and the first active port will do. Devices are limited to names unless there are none.
func choose(ports []Port, from netip.Addr, names []string) (Place, error) {
	var found Place
	best := 0
	for _, p := range ports {
		if !p.Active || !named(names, p.Device) {
			continue
		}
		for _, g := range p.GIDs {
			rank := 0
			switch same := netip.AddrFrom16(g.Value).Unmap() == from.Unmap(); {
			case same && g.RoCE2:
				rank = 3
			case same:
				rank = 2
			case !p.Ethernet && g.Index == 0:
				rank = 1
			}
			if rank > best {
				best, found = rank, Place{Port: p, GID: g}
			}
		}
	}
	if best == 0 {
		return found, errNoPort
	}
	return found, nil
}

func named(names []string, device string) bool {
	for _, n := range names {
		if n == device {
			return true
		}
	}
	return len(names) == 0
}
