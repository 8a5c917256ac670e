package talk

import (
	"sync"
	"sync/atomic"
	"time"

	"gorun/rendezvous/liveness"
)

// Heard notes when the goroutine that reads from a daemon last got something from it.
type Heard struct {
	at   atomic.Pointer[time.Time]
	busy atomic.Bool // the goroutine does not read: a terminal that takes nothing does not make the host silent
}

// Reading notes that the launcher waits for the host to speak, from now on.
func (h *Heard) Reading(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(false)
}

// Has notes that the host has spoken, and that the launcher is busy with that.
func (h *Heard) Has(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(true)
}

// Busy reports whether the launcher has not listened since a moment, as it handles what the host said last.
func (h *Heard) Busy(since time.Time) bool {
	at := h.at.Load()
	return h.busy.Load() && at != nil && !at.After(since)
}

// Last returns when the host was last heard, which is now while the launcher does not listen; zero if it has not spoken
// yet.
func (h *Heard) Last(now time.Time) time.Time {
	at := h.at.Load()
	switch {
	case at == nil:
		return time.Time{}
	case h.busy.Load():
		return now
	}
	return *at
}

// Spoken notes when the launcher last spoke to a host, and its last long pause before that.
type Spoken struct {
	mu     sync.Mutex
	pauses liveness.Gaps
}

// spokenEvery returns the notes of a launcher that should speak this often.
func spokenEvery(d time.Duration) Spoken { return Spoken{pauses: liveness.Gaps{Limit: 2 * d}} }

// Note takes a moment at which the launcher speaks.
func (s *Spoken) Note(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses.Look(now)
}

// Silent returns the present pause, or else the last one.
func (s *Spoken) Silent(now time.Time) liveness.Gap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pauses.Latest(now)
}
