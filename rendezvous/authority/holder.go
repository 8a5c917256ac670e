package authority

import (
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// Holder is the launcher that speaks for a job.
type Holder struct {
	last       wire.Keep                // with the last value, and the electors that belong to it
	has        map[string]uint64        // the value that each elector has, by its name
	heard      map[string]time.Duration // when each elector answered last
	floor      time.Duration            // since when this launcher could have heard the electors
	looked     time.Duration            // when it last did
	invited    []string                 // no electors yet: they are to know the job first, since strangers have no vote
	agreed     uint64                   // the value to be kept before the electors may change: the one with which they did, or the first
	kept       uint64
	superseded bool
}

// NewHolder returns the launcher on the host self. One that takes over goes on from a Legacy; the first has term 1, and of
// a Legacy only the electors.
func NewHolder(self, job string, lease time.Duration, from Legacy, now time.Duration) *Holder {
	return &Holder{has: map[string]uint64{}, heard: map[string]time.Duration{}, floor: now, looked: now,
		last: wire.Keep{Job: job, Term: max(from.Term, 1), Seq: from.Seq, Holder: self, Electors: from.Electors, LeaseMS: int(lease.Milliseconds())}}
}

// Put gives the electors another value, and returns its number. The caller keeps the slice as it is.
func (h *Holder) Put(value []byte, over bool) uint64 {
	h.last.Seq++
	h.last.Value, h.last.Over = value, over
	if h.agreed == 0 {
		h.agreed = h.last.Seq
	}
	return h.last.Seq
}

// Extend says how long the launcher may be silent from the next value on, if that is longer than before.
func (h *Holder) Extend(lease time.Duration) {
	h.last.LeaseMS = max(h.last.LeaseMS, int(lease.Milliseconds()))
}

// Electors decide who carries the job on. The slice is not changed in place.
func (h *Holder) Electors() []string { return h.last.Electors }

// Tell are the electors, and who may become one.
func (h *Holder) Tell() []string { return slices.Concat(h.last.Electors, h.invited) }

// Invite has hosts told what electors are, in place of those that were invited before.
func (h *Holder) Invite(names []string) {
	h.invited = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(h.last.Electors, name) })
}

// Settled is true when the present electors are agreed upon, and may change.
func (h *Holder) Settled() bool { return !h.superseded && h.agreed > 0 && h.kept >= h.agreed }

// Change has others be electors from now on: one that was invited more, or one less. It is false if that may not be yet, or
// not enough of them know the job to carry it on.
func (h *Holder) Change(electors []string) bool {
	if !h.Settled() || h.last.Over || !oneApart(h.last.Electors, electors) {
		return false
	}
	know := 0
	for _, name := range electors {
		switch {
		case h.has[name] > 0:
			know++
		case !slices.Contains(h.last.Electors, name):
			return false
		}
	}
	if know <= len(electors)/2 {
		return false
	}
	h.last.Seq++
	h.last.Electors, h.agreed = slices.Clone(electors), h.last.Seq
	h.Invite(h.invited)
	return true
}

// oneApart is true if one of the sets has one elector more than the other, and is otherwise the same.
func oneApart(a, b []string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return len(b) == len(a)+1 && len(a) > 0 && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

func (h *Holder) lease() time.Duration { return time.Duration(h.last.LeaseMS) * time.Millisecond }

// Lost are electors that have been silent for the lease, while a majority of them was not. It is to be asked more often
// than once in half a lease: a launcher that stood still has not heard what was said.
func (h *Holder) Lost(now time.Duration) (lost []string) {
	lease := h.lease()
	if now-h.looked > lease/2 {
		h.floor = now
	}
	h.looked = now
	for _, name := range h.last.Electors {
		if now-max(h.heard[name], h.floor) >= lease {
			lost = append(lost, name)
		}
	}
	if 2*len(lost) >= len(h.last.Electors) {
		h.floor = now // it is this launcher that is cut off, or nothing can be done
		return nil
	}
	return lost
}

// Renew takes a step towards electors that live. spares are hosts that could be electors: they are invited, and become electors
// only after they have answered. It is false if the electors do not change, or not yet.
func (h *Holder) Renew(now time.Duration, spares []string) bool {
	h.Invite(spares)
	known := slices.DeleteFunc(slices.Clone(h.invited), func(name string) bool { return h.has[name] == 0 || now-h.heard[name] >= h.lease() })
	next := renewed(h.last.Electors, h.Lost(now), known)
	return next != nil && h.Change(next)
}

// renewed is the next set of electors, nil to leave it as it is. A spare host comes before one that is lost goes: should that
// one return meanwhile, it still counts. If none can come, two go at a time, since those who are left then need fewer of themselves.
func renewed(electors, lost, spares []string) []string {
	n := len(electors)
	without := func(gone string) []string {
		return slices.DeleteFunc(slices.Clone(electors), func(name string) bool { return name == gone })
	}
	with := func() []string { return append(slices.Clone(electors), spares[0]) }
	odd, gone, spare := n%2 == 1, len(lost) > 0, len(spares) > 0
	switch {
	case n == 2 && spare: // both are needed, so that the next loss would end the job
		return with()
	case odd && gone && spare: // before the lost one goes
		return with()
	case odd && n < Most && len(spares) > 1: // the first of two: four alone bear no more losses than three
		return with()
	case !odd && !gone && n < Most && spare: // the second of them, or of one that came for a lost one which is back
		return with()
	case !odd && gone && n > Fewest: // a spare is there in its place, or it is the second of two
		return without(lost[0])
	case odd && len(lost) > 1: // the first of two, since no spare is there
		return without(lost[0])
	case !odd && !gone && n > Fewest: // the lost one is back, and needs nobody in its place
		return without(electors[n-1])
	}
	return nil
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
func (h *Holder) Answered(now time.Duration, elector string, a *wire.Kept) {
	if a.Term > h.last.Term {
		h.superseded = true
	}
	if a.Term == h.last.Term {
		h.has[elector], h.heard[elector] = a.Seq, now
		h.kept = max(h.kept, h.majority())
	}
}

// majority is the last value that a majority of the present electors has.
func (h *Holder) majority() (best uint64) {
	for _, seq := range h.has {
		n := 0
		for _, name := range h.last.Electors {
			if h.has[name] >= seq {
				n++
			}
		}
		if n > len(h.last.Electors)/2 {
			best = max(best, seq)
		}
	}
	return best
}

// Kept is the number of the last value that a majority has, which may be acted upon with those before it.
func (h *Holder) Kept() uint64 {
	if h.superseded {
		return 0
	}
	return h.kept
}

// Superseded is true when another launcher has, or may have, taken over: this one must do nothing more.
func (h *Holder) Superseded() bool { return h.superseded }

// Term is the launcher's.
func (h *Holder) Term() uint64 { return h.last.Term }
