package liveness

import (
	"slices"
	"time"
)

// ballot decides which hosts are lost when some no longer hear others. Of two hosts that do not hear each other, either
// may be cut off, and quite possibly the one that reports first: it misses the most. So:
//
//   - A host that the launcher does not hear either is lost on the report of one peer.
//   - A host that the launcher hears is lost if more than half of the voters report it and none of them suspects another.
//   - Otherwise all get time to report what they hear. Then the hosts that miss the most others are lost, one by one,
//     until all that remain hear each other. Of two groups the larger remains, of equal ones the group with the first host.
//
// While a world is being formed, hosts from a former world hold what ranks have trained, and joiners hold nothing. So
// if a joiner and such a host do not hear each other, the joiner is lost, whichever reports it, and joiners have no
// vote.
//
// The zero value is ready for use.
type ballot struct {
	grace time.Duration // for the others to report, from the first warning
	since map[suspicion]*claim
}

type suspicion struct{ by, of int }

// claim is the state of a suspicion.
type claim struct {
	since time.Time // when it was first warned of, or reported
	over  bool      // the lease is over: a warning alone decides nothing
}

// warn notes that one host will soon suspect another one that stays silent.
func (b *ballot) warn(now time.Time, by, of int) {
	if b.since == nil {
		b.since = map[suspicion]*claim{}
	}
	if s := (suspicion{by, of}); b.since[s] == nil && by != of {
		b.since[s] = &claim{since: now}
	}
}

// suspect notes that one host has not heard another one for the lease.
func (b *ballot) suspect(now time.Time, by, of int) {
	b.warn(now, by, of)
	if c := b.since[suspicion{by, of}]; c != nil {
		c.over = true
	}
}

// withdraw notes that the host hears the other one again.
func (b *ballot) withdraw(by, of int) { delete(b.since, suspicion{by, of}) }

// lost returns the hosts that are lost by now, of the members that remain of the present world. heard reports which
// hosts the launcher hears, joiner which have not been in a world yet.
func (b *ballot) lost(now time.Time, members []int, heard, joiner func(host int) bool) (lost []int) {
	left := slices.Sorted(slices.Values(members))
	for {
		for s := range b.since {
			if !slices.Contains(left, s.by) || !slices.Contains(left, s.of) {
				delete(b.since, s)
			}
		}
		host, found := b.next(now, left, heard, joiner)
		if !found {
			return lost
		}
		lost = append(lost, host)
		left = slices.DeleteFunc(left, func(id int) bool { return id == host })
	}
}

// next returns one member that is lost.
func (b *ballot) next(now time.Time, members []int, heard, joiner func(int) bool) (host int, found bool) {
	if len(b.since) == 0 {
		return 0, false
	}
	voters, joiners := split(members, joiner)
	over, all := reports{}, reports{}
	due := false
	for s, c := range b.since {
		due = due || c.over && now.Sub(c.since) >= b.grace
		switch {
		case slices.Contains(voters, s.by) || slices.Contains(joiners, s.of):
		case heard(s.of):
			s = suspicion{s.of, s.by}
		default:
			continue
		}
		all[s] = true
		if c.over {
			over[s] = true
		}
	}
	for _, id := range members {
		by := over.about(id)
		votes := slices.DeleteFunc(slices.Clone(by), func(id int) bool { return !slices.Contains(voters, id) })
		if len(by) > 0 && !heard(id) || 2*over.agreed(votes) > len(voters) {
			return id, true
		}
	}
	if !due {
		return 0, false
	}
	concerned := func(hosts []int) []int {
		return slices.DeleteFunc(slices.Clone(hosts), func(id int) bool { return !over.concern(id) })
	}
	if host, found = all.mostParted(concerned(voters), voters); !found {
		host, found = all.mostParted(concerned(joiners), members)
	}
	return host, found
}

// split divides the members into voters and joiners. If all are joiners, all vote, as none has anything to lose.
func split(members []int, joiner func(int) bool) (voters, joiners []int) {
	for _, id := range members {
		if joiner(id) {
			joiners = append(joiners, id)
		} else {
			voters = append(voters, id)
		}
	}
	if len(voters) == 0 {
		return joiners, nil
	}
	return voters, joiners
}

// reports are suspicions that count.
type reports map[suspicion]bool

// mostParted returns the host that is parted from the most others: it misses them, or they miss it. It considers only
// hosts that are parted from any of some.
func (r reports) mostParted(hosts, some []int) (host int, found bool) {
	most, mostBy := 0, 0
	for _, id := range hosts {
		by := len(r.about(id))
		parted := map[int]bool{}
		for s := range r {
			switch id {
			case s.by:
				parted[s.of] = true
			case s.of:
				parted[s.by] = true
			}
		}
		if !slices.ContainsFunc(some, func(other int) bool { return parted[other] }) {
			continue
		}
		if n := len(parted); n > most || n == most && by >= mostBy {
			host, found, most, mostBy = id, true, n, by
		}
	}
	return host, found
}

// concern reports whether a host misses another one, or is missed.
func (r reports) concern(host int) bool {
	for s := range r {
		if s.by == host || s.of == host {
			return true
		}
	}
	return false
}

// about returns the hosts that miss a host.
func (r reports) about(host int) (by []int) {
	for s := range r {
		if s.of == host {
			by = append(by, s.by)
		}
	}
	return by
}

// agreed returns how many of the hosts in by are suspected by none of the others in by.
func (r reports) agreed(by []int) int {
	n := 0
	for _, id := range by {
		if !slices.ContainsFunc(r.about(id), func(other int) bool { return slices.Contains(by, other) }) {
			n++
		}
	}
	return n
}
