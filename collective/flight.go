package collective

import (
	"cmp"
	"slices"
	"time"

	"gorun/collective/flight"
	"gorun/collective/kernel"
)

// Recorded is an operation that the recorder kept, or one that has not ended, with the ranks that it waits for.
type Recorded struct {
	flight.Operation
	Ranks   []int // of this host in the group, by their place; nil if the group is no more
	Missing []Absent
}

// KindName returns what the operation is, in a word, as far as this host knows.
func (r *Recorded) KindName() string {
	if r.Kind == 0 {
		return ""
	}
	return Kind(r.Kind).String()
}

// TypeName returns the type of the elements.
func (r *Recorded) TypeName() string { return kernel.Type(r.Type).String() }

// Flight returns the latest operations, at most that many: first the ended ones, then the open ones, each the oldest
// first. It also returns the moment from which times count. There are none without Config.Record.
func (e *Engine) Flight(most int) (since time.Time, all []Recorded) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.recorder
	if r == nil {
		return since, nil
	}
	var open []Recorded
	for _, o := range e.ops.open {
		if o.note.Ended == 0 {
			open = append(open, Recorded{o.note, o.group.local(), o.absent()})
		}
	}
	slices.SortFunc(open, func(a, b Recorded) int { return cmp.Compare(a.Number, b.Number) })
	open = open[:min(len(open), max(most, 0))]
	for _, o := range r.ring.Latest(nil, most-len(open)) {
		recorded := Recorded{Operation: o}
		if g := e.groups.byID[o.Group]; g != nil && o.Epoch == e.world.Epoch {
			recorded.Ranks = g.local()
		}
		all = append(all, recorded)
	}
	return r.since, append(all, open...)
}

// Counts returns what operations have done so far, for each kind that there was, and how many are open: a rank has
// submitted them, or another host has declared them, and they have not ended. It returns nothing without Config.Record.
func (e *Engine) Counts() (all []Count, open int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.recorder == nil {
		return nil, 0
	}
	for kind, c := range e.recorder.counts {
		if c.Ended > 0 && kind > 0 {
			c.Kind = Kind(kind)
			all = append(all, c)
		}
	}
	return all, len(e.ops.open)
}
