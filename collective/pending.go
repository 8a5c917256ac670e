package collective

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Stall is an operation that is not finished.
type Stall struct {
	Kind  Kind // 0 if it is not known
	Name  string
	Group uint32
	Since time.Time // when Pending first saw it
	// Missing are the ranks whose contributions this host does not know of: its own ranks one by one, other hosts
	// with all their ranks. Empty if the operation runs and waits for data.
	Missing []Absent
}

// Absent are ranks of a host that an operation waits for.
type Absent struct {
	Host  string
	Ranks []int
}

// Pending lists the open operations, oldest first. Since counts from the first call that saw an
// operation, so that operations cost no clock; call it at regular intervals.
func (e *Engine) Pending(now time.Time) []Stall {
	e.mu.Lock()
	defer e.mu.Unlock()
	var stalls []Stall
	for _, o := range e.ops.open {
		if o.since.IsZero() {
			o.since = now
		}
		stalls = append(stalls, Stall{Kind: o.announced(), Name: o.name, Group: o.group.id, Since: o.since,
			Missing: o.absent()})
	}
	slices.SortFunc(stalls, Older)
	return stalls
}

// Older orders stalls by age, and by name.
func Older(a, b Stall) int {
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
}

// absent lists the ranks that are not known to have contributed. Engine.mu is held.
func (u *use) absent() []Absent {
	var all []Absent
	for pos, h := range u.group.hosts {
		a := Absent{Host: h.Name}
		for i, r := range h.Ranks {
			if pos == u.group.self && !u.own.have[i] && !u.hasJoined(i) || pos != u.group.self && !u.declared(pos) {
				a.Ranks = append(a.Ranks, r)
			}
		}
		if len(a.Ranks) > 0 {
			all = append(all, a)
		}
	}
	return all
}
