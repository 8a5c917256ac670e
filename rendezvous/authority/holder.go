package authority

import (
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// Holder is the launcher that holds a job.
type Holder struct {
	last       wire.Keep                // with the latest value, and the electors that belong to it
	has        map[string]uint64        // the value each elector has stored, by name
	heard      map[string]time.Duration // when each elector last answered
	floor      time.Duration            // since when this launcher has been able to hear the electors
	lastCheck  time.Duration            // the last call of Lost
	invited    []string                 // not electors yet: they must know the job first, as they have no vote without its state
	agreed     uint64                   // the value to be stored before the electors may change again: the one that changed them, or the first
	kept       uint64
	superseded bool
}

// NewHolder returns the launcher on host self. A successor continues from a Snapshot; the first launcher has term 1 and
// takes only the electors from it.
func NewHolder(self, job string, lease time.Duration, from Snapshot, now time.Duration) *Holder {
	return &Holder{has: map[string]uint64{}, heard: map[string]time.Duration{}, floor: now, lastCheck: now,
		last: wire.Keep{Job: job, Term: max(from.Term, 1), Seq: from.Seq, Holder: self, Electors: from.Electors, LeaseMS: int(lease.Milliseconds())}}
}

// Put sets the next value and returns its number. The caller must not change the slice afterwards.
func (h *Holder) Put(value []byte, over bool) uint64 {
	h.last.Seq++
	h.last.Value, h.last.Over = value, over
	if h.agreed == 0 {
		h.agreed = h.last.Seq
	}
	return h.last.Seq
}

// Extend raises the time the launcher may be silent, from the next value on. It never lowers it.
func (h *Holder) Extend(lease time.Duration) {
	h.last.LeaseMS = max(h.last.LeaseMS, int(lease.Milliseconds()))
}

// Electors returns the present electors. The slice is not changed in place.
func (h *Holder) Electors() []string { return h.last.Electors }

// Recipients returns the electors and the hosts that were invited.
func (h *Holder) Recipients() []string { return slices.Concat(h.last.Electors, h.invited) }

// Invite replaces the hosts that receive the state without being electors.
func (h *Holder) Invite(names []string) {
	h.invited = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(h.last.Electors, name) })
}

// ElectorsAgreed reports whether a majority has stored the present set of electors, so that it may change.
func (h *Holder) ElectorsAgreed() bool { return !h.superseded && h.agreed > 0 && h.kept >= h.agreed }

// Change sets the electors from the next value on: one invited host more, or one elector less. It returns false if the
// set may not change yet, or if too few of the new electors know the job.
func (h *Holder) Change(electors []string) bool {
	if !h.ElectorsAgreed() || h.last.Over || !differByOne(h.last.Electors, electors) {
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

// differByOne reports whether one set has exactly one elector more than the other.
func differByOne(a, b []string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return len(b) == len(a)+1 && len(a) > 0 && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

func (h *Holder) lease() time.Duration { return time.Duration(h.last.LeaseMS) * time.Millisecond }

// Lost returns the electors that have been silent for the lease while a majority was not. It must be called more often
// than every half lease: after a longer gap the launcher itself was paused, and the electors' silence proves nothing.
func (h *Holder) Lost(now time.Duration) (lost []string) {
	lease := h.lease()
	if now-h.lastCheck > lease/2 {
		h.floor = now
	}
	h.lastCheck = now
	for _, name := range h.last.Electors {
		if now-max(h.heard[name], h.floor) >= lease {
			lost = append(lost, name)
		}
	}
	if 2*len(lost) >= len(h.last.Electors) {
		h.floor = now // this launcher is cut off, or nothing can be done
		return nil
	}
	return lost
}

// Renew takes one step towards a set of live electors. It invites the replacements, which become electors only after
// they have answered. It returns false if the set does not change, or not yet.
func (h *Holder) Renew(now time.Duration, replacements []string) bool {
	h.Invite(replacements)
	known := slices.DeleteFunc(slices.Clone(h.invited), func(name string) bool { return h.has[name] == 0 || now-h.heard[name] >= h.lease() })
	next := nextElectors(h.last.Electors, h.Lost(now), known)
	return next != nil && h.Change(next)
}

// nextElectors returns the next set of electors, nil to keep the present one. A replacement joins before a lost elector
// leaves, as the lost one still counts should it return. Without a replacement two leave in turn, since the remaining
// ones then need a smaller majority.
func nextElectors(electors, lost, replacements []string) []string {
	n := len(electors)
	without := func(gone string) []string {
		return slices.DeleteFunc(slices.Clone(electors), func(name string) bool { return name == gone })
	}
	with := func() []string { return append(slices.Clone(electors), replacements[0]) }
	odd, gone, spare := n%2 == 1, len(lost) > 0, len(replacements) > 0
	switch {
	case n == 2 && spare: // both are needed: the next loss would end the job
		return with()
	case odd && gone && spare: // before the lost one leaves
		return with()
	case odd && n < Most && len(replacements) > 1: // the first of two: four tolerate no more losses than three
		return with()
	case !odd && !gone && n < Most && spare: // the second of two, or the lost one has returned
		return with()
	case !odd && gone && n > Fewest: // its replacement has joined, or it is the second of two
		return without(lost[0])
	case odd && len(lost) > 1: // the first of two, as there is no replacement
		return without(lost[0])
	case !odd && !gone && n > Fewest: // the lost one has returned and needs no replacement
		return without(electors[n-1])
	}
	return nil
}

// Next returns the message to send to an elector now: the latest value if it lacks it, and a sign of life in any case.
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

// majority returns the last value that a majority of the present electors has stored.
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

// Kept returns the number of the last value that a majority has stored. That value and all before it may be acted on.
func (h *Holder) Kept() uint64 {
	if h.superseded {
		return 0
	}
	return h.kept
}

// Superseded reports whether another launcher has, or may have, taken over. This one must then stop acting.
func (h *Holder) Superseded() bool { return h.superseded }

// Term returns the launcher's term.
func (h *Holder) Term() uint64 { return h.last.Term }
