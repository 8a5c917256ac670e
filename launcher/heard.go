package launcher

import (
	"sync/atomic"
	"time"
)

// heard is when the goroutine that reads from a daemon last got something from it.
type heard struct {
	at   atomic.Pointer[time.Time]
	busy atomic.Bool // it does not read: a terminal that takes nothing is not the host's silence
}

// reading notes since when the launcher waits for the host to speak.
func (h *heard) reading(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(false)
}

// has notes that the host has spoken, and that the launcher is busy with that.
func (h *heard) has(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(true)
}

// last returns when the host was last heard, which is now while the launcher does not listen; zero if it has not spoken yet.
func (h *heard) last(now time.Time) time.Time {
	at := h.at.Load()
	switch {
	case at == nil:
		return time.Time{}
	case h.busy.Load():
		return now
	}
	return *at
}
