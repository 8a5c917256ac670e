package collective

import "slices"

// A rank that joins has no more data. From then on it contributes zeros implicitly: until all ranks of the world have
// joined, its host declares it ready for whatever others submit, with a variant of kind Join instead of a contribution,
// and an allreduce takes zeros for it. Every host declares for its own ranks only, so all see the same.
//
// When all ranks have joined a new round begins, but hosts learn of that at different times. What a host declares after
// the last of its ranks joined belongs to the next round (vote.later): other hosts must not answer it for ranks that
// have joined only as far as they know.

// hasJoined reports whether a local rank takes no part because it joined.
func (u *use) hasJoined(index int) bool {
	return !u.own.have[index] && u.name != joinName && u.group.joined[index] && !u.group.pending[index][u.name]
}

// here reports whether all local ranks submitted their contributions or joined. A rank has joined when none of its
// contributions is pending.
func (u *use) here() bool {
	for i := range u.own.reqs {
		more := u.name == joinName && u.group.id == 0 && len(u.group.pending[i]) > 0
		if more || !u.own.have[i] && !u.hasJoined(i) {
			return false
		}
	}
	return true
}

// requested reports whether a rank that has not joined submitted a contribution in this round.
func (u *use) requested() bool {
	return u.own.count > 0 || slices.ContainsFunc(u.votes, func(v vote) bool { return v.set && v.later == 0 && v.real() })
}

// closed reports whether this host has declared this use, or will do so when a pause ends, although some of its ranks
// had joined. What such a rank submits from now on is for the next use of the name.
func (u *use) closed() bool {
	return u.declared(u.group.self) || u.held && u.own.lacking()
}

// postponed reports whether a local rank has contributed to the next use.
func (u *use) postponed(index int) bool {
	return slices.ContainsFunc(u.waiting, func(w early) bool { return w.index == index })
}

// fillIn puts Joins in the place of contributions of the local ranks that joined.
func (u *use) fillIn(stamp int) {
	for i := range u.own.reqs {
		if !u.own.have[i] {
			u.own.reqs[i] = Request{Kind: Join, Name: u.name, Pre: 1, Post: 1, stamp: stamp}
		}
	}
}

// promised reports whether all ranks submit their contributions whatever becomes of the group.
func (u *use) promised() bool {
	for i := range u.own.reqs {
		if u.own.have[i] && u.own.reqs[i].Follows || u.group.pending[i][u.name] {
			return true
		}
	}
	return false
}
