package elastic

import (
	"slices"
	"time"
)

// hearing is how long the others have to answer an accusation, from when it is foretold. Gossip finds out about its
// members one after the other, and asks again before it believes in a silence, so two hosts that were parted in one
// moment may say so seconds apart.
const hearing = 5 * time.Second

// Accusations decide which hosts are lost when some say that they do not hear others any more. Either may be the one
// that is cut off, and who speaks first may well be: it has the most to miss. So the word of one is believed against a
// host that the launcher does not hear either. Of hosts that the launcher hears, those are lost that more than half
// of all members agree about; if nobody is so many, the others are given time to answer, and then those go that have
// lost the most others, one by one, until those that are left all hear each other. What is left of a network in
// two parts is the larger one, of equal ones that with the host that came first.
//
// While a world is being formed, hosts that were in one before hold what ranks have trained, and newcomers hold
// nothing. So a newcomer and another host that do not hear each other cost the newcomer, whoever says it, and newcomers
// have no vote.
//
// The zero value is ready for use.
type Accusations struct {
	since map[accusation]*claim
}

type accusation struct{ by, of int }

// claim is what is known of an accusation.
type claim struct {
	since time.Time // when it was first said, or foretold
	said  bool
}

// Foretell says that one host will soon accuse another one, unless it hears it: a word that counts with others, but not
// by itself.
func (a *Accusations) Foretell(now time.Time, by, of int) {
	if a.since == nil {
		a.since = map[accusation]*claim{}
	}
	if c := (accusation{by, of}); a.since[c] == nil && by != of {
		a.since[c] = &claim{since: now}
	}
}

// Accuse says that one host does not hear another one.
func (a *Accusations) Accuse(now time.Time, by, of int) {
	a.Foretell(now, by, of)
	if w := a.since[accusation{by, of}]; w != nil {
		w.said = true
	}
}

// Withdraw says that it hears it again.
func (a *Accusations) Withdraw(by, of int) { delete(a.since, accusation{by, of}) }

// Judge returns the hosts that are lost by now. Members are those that are left of the present world; of others
// nothing is to be decided any more. Heard says whom the launcher hears, newcomer who has not been in a world yet.
func (a *Accusations) Judge(now time.Time, members []int, heard, newcomer func(host int) bool) (lost []int) {
	left := slices.Sorted(slices.Values(members))
	for {
		for c := range a.since {
			if !slices.Contains(left, c.by) || !slices.Contains(left, c.of) {
				delete(a.since, c)
			}
		}
		host, found := a.next(now, left, heard, newcomer)
		if !found {
			return lost
		}
		lost = append(lost, host)
		left = slices.DeleteFunc(left, func(id int) bool { return id == host })
	}
}

// next returns one that is lost.
func (a *Accusations) next(now time.Time, members []int, heard, newcomer func(int) bool) (host int, found bool) {
	var voters, newcomers []int
	for _, id := range members {
		if newcomer(id) {
			newcomers = append(newcomers, id)
		} else {
			voters = append(voters, id)
		}
	}
	if len(voters) == 0 { // nobody has anything to lose
		voters, newcomers = newcomers, nil
	}
	said, all := words{}, words{}
	due := false
	for c, w := range a.since {
		due = due || w.said && now.Sub(w.since) >= hearing
		switch {
		case slices.Contains(voters, c.by) || slices.Contains(newcomers, c.of):
		case heard(c.of):
			c = accusation{c.of, c.by}
		default:
			continue
		}
		all[c] = true
		if w.said {
			said[c] = true
		}
	}
	for _, id := range members {
		by := said.against(id)
		votes := slices.DeleteFunc(slices.Clone(by), func(id int) bool { return !slices.Contains(voters, id) })
		if len(by) > 0 && !heard(id) || 2*said.agreed(votes) > len(voters) {
			return id, true
		}
	}
	if !due {
		return 0, false
	}
	concerned := func(hosts []int) []int {
		return slices.DeleteFunc(slices.Clone(hosts), func(id int) bool { return !said.concern(id) })
	}
	if host, found = all.mostParted(concerned(voters), voters); !found {
		host, found = all.mostParted(concerned(newcomers), members)
	}
	return host, found
}

// words are accusations that count.
type words map[accusation]bool

// mostParted returns which of the hosts has lost the most others, of those that have lost any of some.
func (w words) mostParted(hosts, some []int) (host int, found bool) {
	most, mostBy := 0, 0
	for _, id := range hosts {
		by := len(w.against(id))
		parted := map[int]bool{}
		for c := range w {
			switch id {
			case c.by:
				parted[c.of] = true
			case c.of:
				parted[c.by] = true
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

// concern is true for a host that does not hear another one, or is not heard.
func (w words) concern(host int) bool {
	for c := range w {
		if c.by == host || c.of == host {
			return true
		}
	}
	return false
}

// against returns who does not hear a host.
func (w words) against(host int) (by []int) {
	for c := range w {
		if c.of == host {
			by = append(by, c.by)
		}
	}
	return by
}

// agreed returns how many of those who say the same hear each other, for all that is known.
func (w words) agreed(by []int) int {
	n := 0
	for _, id := range by {
		if !slices.ContainsFunc(w.against(id), func(other int) bool { return slices.Contains(by, other) }) {
			n++
		}
	}
	return n
}
