package talk

import (
	"sync"
	"sync/atomic"
	"time"
)

// Heard is when the goroutine that reads from a daemon last got something from it.
type Heard struct {
	at   atomic.Pointer[time.Time]
	busy atomic.Bool // it does not read: a terminal that takes nothing is not the host's silence
}

// Reading notes since when the launcher waits for the host to speak.
func (h *Heard) Reading(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(false)
}

// Has notes that the host has spoken, and that the launcher is busy with that.
func (h *Heard) Has(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(true)
}

// Last returns when the host was last heard, which is now while the launcher does not listen; zero if it has not spoken yet.
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
	Every time.Duration // how often it should
	mu    sync.Mutex
	last  time.Time
	pause Pause
}

// Pause is a time in which the launcher did not speak.
type Pause struct{ From, To time.Time }

// Lasted returns the length of the pause, by wall clock if that is more: the monotonic clock stops while a machine is
// suspended.
func (p Pause) Lasted() time.Duration {
	return max(p.To.Sub(p.From), p.To.Round(0).Sub(p.From.Round(0)))
}

// Note takes a moment at which the launcher speaks.
func (s *Spoken) Note(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := (Pause{s.last, now}); !s.last.IsZero() && p.Lasted() > 2*s.Every {
		s.pause = p
	}
	s.last = now
}

// Silent returns the present pause, or else the last one.
func (s *Spoken) Silent(now time.Time) Pause {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := (Pause{s.last, now}); !s.last.IsZero() && p.Lasted() > 2*s.Every {
		return p
	}
	return s.pause
}
