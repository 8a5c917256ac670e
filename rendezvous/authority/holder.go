package authority

import (
	"time"

	"gorun/rendezvous/wire"
)

// Holder is the launcher that speaks for a job.
type Holder struct {
	last       wire.Keep         // with the last value
	has        map[string]uint64 // the value that each elector has, by its name
	superseded bool
}

// NewHolder returns the launcher on the host self. One that takes over goes on from a Legacy; the first has term 1 and
// no value.
func NewHolder(self, job string, electors []string, lease time.Duration, from Legacy) *Holder {
	return &Holder{has: map[string]uint64{},
		last: wire.Keep{Job: job, Term: max(from.Term, 1), Seq: from.Seq, Holder: self, Electors: electors, LeaseMS: int(lease.Milliseconds())}}
}

// Put gives the electors another value, and returns its number. The caller keeps the slice as it is.
func (h *Holder) Put(value []byte, over bool) uint64 {
	h.last.Seq++
	h.last.Value, h.last.Over = value, over
	return h.last.Seq
}

// Extend says how long the launcher may be silent from the next value on, if that is longer than before.
func (h *Holder) Extend(lease time.Duration) {
	h.last.LeaseMS = max(h.last.LeaseMS, int(lease.Milliseconds()))
}

// Next is what to say to an elector now: the last value if it does not have that, and a sign of life in any case.
func (h *Holder) Next(elector string) *wire.Keep {
	next := h.last
	if h.has[elector] == next.Seq {
		next.Value = nil
	}
	return &next
}

// Answered takes an elector's answer.
func (h *Holder) Answered(elector string, a *wire.Kept) {
	if a.Term > h.last.Term {
		h.superseded = true
	}
	if a.Term == h.last.Term {
		h.has[elector] = a.Seq
	}
}

// Kept is the number of the last value that a majority has, which may be acted upon with those before it.
func (h *Holder) Kept() uint64 {
	if h.superseded {
		return 0
	}
	var best uint64
	for _, seq := range h.has {
		n := 0
		for _, other := range h.last.Electors {
			if h.has[other] >= seq {
				n++
			}
		}
		if n > len(h.last.Electors)/2 {
			best = max(best, seq)
		}
	}
	return best
}

// Superseded is true when another launcher has, or may have, taken over: this one must do nothing more.
func (h *Holder) Superseded() bool { return h.superseded }

// Term is the launcher's.
func (h *Holder) Term() uint64 { return h.last.Term }
