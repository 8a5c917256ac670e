package verbs

import (
	"errors"
	"fmt"
)

// flow is the state of a connected queue pair: which parts of the rings hold bytes, how many messages are in flight,
// and what each side has reported to the other. It is pure; the Conn's lock guards it.
//
// Every message carries 32 bits of immediate data, which report to the peer:
//
//	bits 0-23   bytes of its writes that were read here, modulo 2^24
//	bits 24-31  messages of its that can be received again here, modulo 2^8
//
// A message with bytes leaves room for one message without. So a side can always report, and the two never wait for each
// other forever.
type flow struct {
	size  int // bytes of each ring
	depth int // receives posted by each side

	// Sending. Counters only grow.
	written   uint64 // bytes handed to the queue pair
	completed uint64 // bytes of them whose memory the device no longer needs
	consumed  uint64 // bytes of them that the peer has read
	sent      uint64 // messages
	granted   uint64 // messages that the peer can receive again
	lengths   []int  // bytes of the messages that have not completed, a ring
	done      uint64 // messages that have completed
	reserved  int    // messages whose bytes are being copied: 0 or 1

	// Receiving.
	arrived, read   uint64 // bytes
	readReported    uint64
	received        uint64 // messages; each was posted again
	receiveReported uint64
}

const (
	maxRing  = 8 << 20 // half of what 24 bits count
	maxDepth = 127     // less than half of what 8 bits count
	minDepth = 4       // with fewer, two ends could go on reporting each other's reports

	byteBits = 24
	byteMask = 1<<byteBits - 1
)

var errFlow = errors.New("the peer's queue pair does not follow the protocol")

func newFlow(s Size) flow {
	return flow{size: s.Ring, depth: s.Depth, lengths: make([]int, s.Depth)}
}

// unposted returns how many messages may be posted: neither the queue nor the peer's receives take more.
func (f *flow) unposted() int {
	return f.depth - f.reserved - int(max(f.sent-f.done, f.sent-f.granted))
}

// idle reports whether the device has done everything that was posted or is about to be.
func (f *flow) idle() bool { return f.done == f.sent && f.reserved == 0 }

// room returns where in the ring bytes may be written, and how many in one piece; none if a message would be too many.
func (f *flow) room() (offset, n int) {
	if f.unposted() < 2 {
		return 0, 0
	}
	offset = int(f.written % uint64(f.size))
	free := f.size - int(f.written-min(f.completed, f.consumed))
	return offset, min(free, f.size-offset)
}

// send records a message of n bytes, which is posted now, and returns its immediate data.
func (f *flow) send(n int) (imm uint32) {
	f.lengths[f.sent%uint64(f.depth)] = n
	f.sent++
	f.written += uint64(n)
	f.readReported, f.receiveReported = f.read, f.received
	return uint32(f.received)<<byteBits | uint32(f.read)&byteMask
}

// mustReport reports whether the peer may be waiting for a report that no message with bytes has carried, and there is
// room for a message without.
func (f *flow) mustReport() bool {
	due := f.read-f.readReported >= uint64(max(f.size/4, 1)) || f.received-f.receiveReported >= uint64(f.depth/2)
	return due && f.unposted() > 0
}

// readable returns where bytes can be read, and how many in one piece.
func (f *flow) readable() (offset, n int) {
	offset = int(f.read % uint64(f.size))
	return offset, min(int(f.arrived-f.read), f.size-offset)
}

// consume records that n bytes were read.
func (f *flow) consume(n int) { f.read += uint64(n) }

// complete processes a completion.
func (f *flow) complete(c Completion) error {
	switch {
	case c.Status != 0:
		return &StatusError{c.Status}
	case !c.Receive:
		if f.done == f.sent {
			return fmt.Errorf("%w: a write completed that was not posted", errFlow)
		}
		f.completed += uint64(f.lengths[f.done%uint64(f.depth)])
		f.done++
		return nil
	}
	f.received++
	f.arrived += uint64(c.Bytes)
	if c.Bytes < 0 || f.arrived-f.read > uint64(f.size) {
		return fmt.Errorf("%w: %d bytes do not fit", errFlow, c.Bytes)
	}
	f.consumed += uint64(c.Imm-uint32(f.consumed)) & byteMask
	f.granted += uint64(uint8(c.Imm>>byteBits) - uint8(f.granted))
	if f.consumed > f.written || f.granted > f.sent {
		return fmt.Errorf("%w: it has received more than was sent", errFlow)
	}
	return nil
}

// StatusError is the status of a work request that failed, as ibv_wc_status counts them.
type StatusError struct{ Status uint32 }

func (e *StatusError) Error() string {
	name, ok := statuses[e.Status]
	if !ok {
		name = fmt.Sprintf("status %d", e.Status)
	}
	return "queue pair failed: " + name
}

// Statuses of work requests that failed because of a network, a peer or a device.
const (
	StatusLength        = 1
	StatusOperation     = 2
	StatusProtection    = 4
	StatusFlushed       = 5
	StatusResponse      = 7
	StatusAccess        = 8
	StatusRemoteRequest = 9
	StatusRemoteAccess  = 10
	StatusRemote        = 11
	StatusRetries       = 12
	StatusNotReady      = 13
	StatusAborted       = 16
	StatusFatal         = 19
	StatusTime          = 20
	StatusGeneral       = 21
)

var statuses = map[uint32]string{
	StatusLength: "local length error", StatusOperation: "local queue pair error",
	StatusProtection: "local protection error", StatusFlushed: "flushed", StatusResponse: "bad response", StatusAccess: "local access error",
	StatusRemoteRequest: "remote invalid request", StatusRemoteAccess: "remote access error",
	StatusRemote: "remote operation error", StatusRetries: "retries exceeded: no answer from the peer",
	StatusNotReady: "the peer has no receive posted", StatusAborted: "aborted by the peer",
	StatusFatal: "fatal error of the device", StatusTime: "no response in time", StatusGeneral: "error of the device",
}
