package collective

import (
	"sync/atomic"

	"gorun/collective/link"
)

// channel puts the control messages of a peer in the order in which they were sent: the link keeps no
// order across streams. The number of a message is the Offset of its segment.
type channel struct {
	sent uint64
	next uint64            // number of the message to hear next
	held map[uint64][]byte // came early
	size int               // of held
	lost bool              // that message will not come: all later ones are dropped

	stopped uint32 // the last pause that the peer announced nothing after
}

// message is a control message on its way to several peers.
type message struct {
	pools    *pools
	payload  []byte
	segments []link.Segment
	peers    []int
	left     atomic.Int32 // segments the link holds
}

// Prepare implements link.Owner.
func (m *message) Prepare(*link.Segment) {}

// Acked implements link.Owner.
func (m *message) Acked(*link.Segment) {
	if m.left.Add(-1) == 0 {
		m.pools.messages.Put(m)
	}
}
