package link

import (
	"sync"
	"time"

	"gorun/collective/flight"
)

// events are the last events of all links of a mesh. They are rare, so that a lock of their own does no harm.
type events struct {
	mu    sync.Mutex
	since time.Time
	ring  *flight.Ring[flight.Link]
}

// add takes note of an event of a link.
func (e *events) add(l *link, stream int, what uint8, resent int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ring.Add(&flight.Link{At: int64(time.Since(e.since)), Peer: l.peer, Stream: stream, What: what, Resent: resent})
}

// Events returns the last events of the links, the oldest first, and when their times count from.
func (m *Mesh) Events() (since time.Time, all []flight.Link) {
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	return m.events.since, m.events.ring.Latest(nil, flight.Links)
}
