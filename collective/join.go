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

// ready reports whether all local ranks submitted their contributions or joined. A rank has joined when none of its
// contributions is pending.
func (*readiness) ready(o *op) bool {
	for i := range o.own.reqs {
		more := o.name == joinName && o.group.id == 0 && len(o.group.pending[i]) > 0
		if more || !o.own.have[i] && !o.hasJoined(i) {
			return false
		}
	}
	return true
}

// requested reports whether a rank that has not joined submitted a contribution in this round.
func (*readiness) requested(o *op) bool {
	return o.own.count > 0 || slices.ContainsFunc(o.votes, func(v vote) bool { return v.set && v.later == 0 && v.real() })
}

// join marks a rank as joined, and declares it ready for what others wait for.
func (t *readiness) join(g *group, index int, names []string) {
	g.joined[index] = true
	g.pend(index, names)
	for _, o := range t.open {
		t.contributeZeros(o)
	}
}

// resolve implements negotiation.
func (t *readiness) resolve(g *group, index int, name string) {
	if !g.pending[index][name] {
		return
	}
	delete(g.pending[index], name)
	if g.id != 0 {
		if g.removed {
			t.retire(g)
		}
		return
	}
	if o := t.open[hash(g.id, name)]; o != nil {
		t.contributeZeros(o)
	}
	// If that was all that the last round of joins waited for, it ends.
	if o := t.open[hash(g.id, joinName)]; o != nil && !o.declared(g.self) && t.ready(o) {
		t.declare(o)
	}
}

// Resolve reports that a local rank submits nothing under a name that was pending when it joined, or removed a group:
// the contribution is in a result already, or has failed.
func (e *Engine) Resolve(epoch uint32, rank int, group uint32, name string) {
	e.mu.Lock()
	g := e.groups.byID[group]
	if e.stopped != nil || epoch != e.world.Epoch || g == nil {
		e.mu.Unlock()
		return
	}
	if index := slices.Index(g.local(), rank); index >= 0 {
		e.negotiation.resolve(g, index, name)
	}
	var room [2]event
	more := e.drain(room[:0])
	e.mu.Unlock()
	e.follow(more)
}

// contributeZeros declares this host ready for an operation if only ranks that joined are missing, and reports whether
// it did.
func (t *readiness) contributeZeros(o *op) bool {
	if o.group.id != 0 || o.name == joinName || o.declared(o.group.self) || !t.ready(o) || !t.requested(o) {
		return false
	}
	t.declare(o)
	return true
}

// closed reports whether this host has declared what its ranks contribute, or will when a pause ends, although some
// had joined: what one of these submits now is for the next use of the name.
func (*readiness) closed(o *op) bool {
	return o.declared(o.group.self) || o.held && o.own.lacking()
}

// postponed reports whether a local rank has contributed to the next use.
func (*readiness) postponed(o *op, index int) bool {
	return slices.ContainsFunc(o.waiting, func(w early) bool { return w.index == index })
}

// resume begins the next use of a name. Ranks of this host have contributed to it already.
func (t *readiness) resume(o *op) {
	n := t.begin(o.group, o.id, o.name)
	n.startFrom(&o.ballot)
	for _, w := range o.waiting {
		n.own.put(w.index, &w.req)
	}
	o.waiting = o.waiting[:0]
	if g := n.group; g.doomed(n.votes) {
		delete(t.open, o.id)
		t.report(event{op: n, err: g.left(n.announced(), n.name, g.gone[0])})
		return
	}
	t.contributeZeros(n)
}

// fillIn puts Joins in the place of contributions of the local ranks that joined.
func (t *readiness) fillIn(o *op) {
	for i := range o.own.reqs {
		if !o.own.have[i] {
			o.own.reqs[i] = Request{Kind: Join, Name: o.name, Pre: 1, Post: 1, stamp: t.stamp}
		}
	}
}

// stampOf returns a time for a rank that joins, later than all that this host knows of, whatever its clock shows.
func (t *readiness) stampOf(r *Request) int {
	t.stamp = max(r.stamp, t.stamp+1)
	return t.stamp
}

// notice takes note of the ranks that joined according to a message, and returns how many rounds ahead it is.
func (t *readiness) notice(g *group, pos int, m *ready) int {
	later, rest := g.closed[pos], m.body
	for range m.variants {
		var v variant
		v, rest, _ = readVariant(rest)
		if v.kind() != Join {
			continue
		}
		for i := range v.count() {
			_, stamp := v.rank(i)
			t.stamp = max(t.stamp, stamp)
		}
	}
	if string(m.name) == joinName {
		g.closed[pos]++
	}
	return later
}

// endRound begins a new round: all ranks have joined, and may submit again.
func (t *readiness) endRound(g *group) {
	if g.id != 0 {
		return // an operation that has the name of Join
	}
	clear(g.joined)
	clear(g.pending)
	for pos := range g.closed {
		g.closed[pos] = max(g.closed[pos]-1, 0)
	}
	for _, o := range t.open {
		if o.group != g {
			continue
		}
		for pos := range o.votes {
			o.votes[pos].later = max(o.votes[pos].later-1, 0)
			o.next[pos].later = max(o.next[pos].later-1, 0)
		}
	}
}
