package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// End is what a side has to know of the other's queue pair, in the order in which an offer has it.
type End struct {
	LID    uint16
	Number uint32 // 24 bits
	PSN    uint32 // 24 bits: of the first packet it sends
	GID    [16]byte
	Ring   uint64 // address of the ring that the peer writes to
	Key    uint32 // rkey of the ring
	MTU    uint32
}

// Pair is a queue pair with a completion queue, a completion channel and two rings of registered memory. One goroutine
// at a time may post, one may poll and wait, one may wait for an event; Close is called when none does any more.
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
	// Event returns when an asynchronous event of the device has ended the use of the pair, with an *EventError, or with
	// another error after Wake.
	Event() error
	// Wake ends Wait and Event, now and in future. Any goroutine may call it.
	Wake()
	// Close destroys the pair, then frees its memory.
	Close() error
}

// Completion is an entry of a completion queue.
type Completion struct {
	Status  uint32 // 0 for success
	Receive bool
	Bytes   int    // of a receive
	Imm     uint32 // of a receive
}

// EventError is an asynchronous event after which a queue pair is of no use. Event counts as ibv_event_type does.
type EventError struct {
	Event  uint32
	Device string
	Port   int
}

// Events that end the use of a queue pair. A port may recover; all others are final.
const (
	EventQueue       = 0 // the completion queue overflowed
	EventPair        = 1
	EventPairRequest = 2
	EventPairAccess  = 3
	EventDevice      = 8
	EventPort        = 10
	EventLID         = 11
	EventGID         = 18
)

func (e *EventError) Error() string {
	what := map[uint32]string{EventQueue: "has lost completions", EventPair: "has failed",
		EventPairRequest: "got an invalid request", EventPairAccess: "got a request that it forbids",
		EventDevice: "has failed or was removed", EventPort: "went down", EventLID: "has another LID",
		EventGID: "has lost the address"}[e.Event]
	switch e.Event {
	case EventDevice:
		return fmt.Sprintf("%s %s", e.Device, what)
	case EventPort, EventLID, EventGID:
		return fmt.Sprintf("%s port %d %s", e.Device, e.Port, what)
	}
	return "the queue pair " + what
}

// errNoPort means that no port has a GID for a connection, though one is active.
var errNoPort = errors.New("no RDMA port has the address of the connection; choose its NIC by --network-interfaces")

// choose returns the place for a queue pair beside a TCP connection from the given address. On Ethernet it is the port
// with a GID made of the address, preferably with RoCE v2, so that the queue pair takes the same network as the
// connection. InfiniBand has no such GIDs, and choose takes the first active port. If there are names, it considers
// these devices alone.
func choose(ports []Port, from netip.Addr, names []string, tuning Tuning) (Place, error) {
	var found Place
	best, otherRoCE, active := 0, false, false
	var devices, usable []string
	for _, p := range ports {
		devices = append(devices, p.Device)
		if len(names) > 0 && !slices.Contains(names, p.Device) {
			continue
		}
		usable = append(usable, p.Device)
		active = active || p.Active
		for _, g := range p.GIDs {
			rank := 0
			switch same := netip.AddrFrom16(g.Value).Unmap() == from.Unmap(); {
			case same && g.RoCE2 == (tuning.RoCE != 1):
				rank = 3
			case same && tuning.RoCE == 0:
				rank = 2
			case same:
				otherRoCE = true
			case !p.Ethernet && g.Index == 0:
				rank = 1
			}
			if p.Active && rank > 0 {
				rank += 3
			}
			if rank > best {
				best, found = rank, Place{Port: p, GID: g}
			}
		}
	}
	switch {
	case len(devices) > 0 && len(usable) == 0:
		return found, fmt.Errorf("no RDMA device %s; this host has %s", strings.Join(names, " or "),
			strings.Join(slices.Compact(devices), ", "))
	case best == 0 && otherRoCE:
		return found, fmt.Errorf("no RDMA port has the address of the connection with RoCE v%d; leave out roce=%[1]d",
			tuning.RoCE)
	case best == 0 && len(usable) > 0 && !active:
		return found, fmt.Errorf("no port of %s is active; see gorun doctor", usable[0])
	case best == 0:
		return found, errNoPort
	case !found.Active:
		return found, fmt.Errorf("%s port %d is down; see rdma link and gorun doctor", found.Device, found.Number)
	}
	if tuning.GID >= 0 {
		i := slices.IndexFunc(found.GIDs, func(g GID) bool { return g.Index == tuning.GID })
		if i < 0 {
			return found, fmt.Errorf("%s port %d has no GID %d", found.Device, found.Number, tuning.GID)
		}
		found.GID = found.GIDs[i]
	}
	found.MTU = min(found.MTU, tuning.MTU)
	return found, nil
}
