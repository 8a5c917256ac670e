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
func (o *op) hasJoined(index int) bool {
	return !o.own.have[index] && o.name != joinName && o.group.joined[index] && !o.group.pending[index][o.name]
}

// here reports whether all local ranks submitted their contributions or joined. A rank has joined when none of its
// contributions is pending.
func (o *op) here() bool {
	for i := range o.own.reqs {
		more := o.name == joinName && o.group.id == 0 && len(o.group.pending[i]) > 0
		if more || !o.own.have[i] && !o.hasJoined(i) {
			return false
		}
	}
	return true
}

// requested reports whether a rank that has not joined submitted a contribution in this round.
func (o *op) requested() bool {
	return o.own.count > 0 || slices.ContainsFunc(o.votes, func(v vote) bool { return v.set && v.later == 0 && v.real() })
}

// closed reports whether this host has declared this use, or will do so when a pause ends, although some of its ranks
// had joined. What such a rank submits from now on is for the next use of the name.
func (o *op) closed() bool {
	return o.declared(o.group.self) || o.held && o.own.lacking()
}

// postponed reports whether a local rank has contributed to the next use.
func (o *op) postponed(index int) bool {
	return slices.ContainsFunc(o.waiting, func(w early) bool { return w.index == index })
}

// fillIn puts Joins in the place of contributions of the local ranks that joined.
func (o *op) fillIn(stamp int) {
	for i := range o.own.reqs {
		if !o.own.have[i] {
			o.own.reqs[i] = Request{Kind: Join, Name: o.name, Pre: 1, Post: 1, stamp: stamp}
		}
	}
}

// promised reports whether all ranks submit their contributions whatever becomes of the group.
func (o *op) promised() bool {
	for i := range o.own.reqs {
		if o.own.have[i] && o.own.reqs[i].Follows || o.group.pending[i][o.name] {
			return true
		}
	}
	return false
}
