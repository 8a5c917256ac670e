package collective

import "slices"

// A rank that joins has no more data. Until all ranks of the world have joined, the host of such a rank declares it
// ready for whatever others submit, with a variant of kind Join instead of a part; an allreduce then takes zeros for
// it. Every host speaks for its own ranks only, as ever, so all see the same.
//
// When all have joined a new round begins, but hosts learn of that at different times. What a host submits after
// it said that all of its ranks joined belongs to the next round (vote.later): other hosts must not answer it for
// ranks that they still take for joined.

// joinName is the name of the operation that all ranks submit in the end.
const joinName = "join"

// joining is what a group knows about ranks that joined.
type joining struct {
	joined []bool            // local ranks
	owes   []map[string]bool // by local rank that joined, or removed the group: the names of parts that it still brings
	closed []int             // by position: rounds that the host ended and this one did not
}

// absentee reports whether a local rank takes no part because it joined.
func (o *op) absentee(index int) bool {
	return !o.own.have[index] && o.name != joinName && o.group.joined[index] && !o.group.owes[index][o.name]
}

// ready reports whether all local ranks submitted their parts or joined. Ranks have joined when they owe nothing.
func (o *op) ready() bool {
	for i := range o.own.reqs {
		if !o.own.have[i] && !o.absentee(i) || o.name == joinName && o.group.id == 0 && len(o.group.owes[i]) > 0 {
			return false
		}
	}
	return true
}

// wanted reports whether somebody who has not joined submitted a part in this round.
func (o *op) wanted() bool {
	return o.own.count > 0 || slices.ContainsFunc(o.votes, func(v vote) bool { return v.set && v.later == 0 && v.real() })
}

// real reports whether a host submitted something, instead of having joined as a whole.
func (v *vote) real() bool { return v.kind() != 0 }

// kind returns what the first rank with a part submitted, 0 if all joined.
func (v *vote) kind() Kind {
	for rest, n := v.body, v.variants; n > 0; n-- {
		var x variant
		x, rest, _ = readVariant(rest)
		if x.kind() != Join || string(v.name) == joinName {
			return x.kind()
		}
	}
	return 0
}

// standing is an operation that became ready without a submission, and what that means for it.
type standing struct {
	op      *op
	verdict verdict
	message *message
}

// join marks a rank as joined, and answers for it what others wait for.
func (t *table) join(g *group, index int, owes []string) {
	g.joined[index] = true
	g.owe(index, owes)
	for _, o := range t.ops {
		t.standIn(o)
	}
}

// owe notes what a local rank still brings.
func (g *group) owe(index int, names []string) {
	for _, name := range names {
		if g.owes[index] == nil {
			g.owes[index] = map[string]bool{}
		}
		g.owes[index][name] = true
	}
}

// settle says that a rank which joined, or removed the group, brings nothing more under a name.
func (t *table) settle(g *group, index int, name string) {
	if !g.owes[index][name] {
		return
	}
	delete(g.owes[index], name)
	if g.id != 0 {
		if g.removed {
			t.retire(g)
		}
		return
	}
	if o := t.ops[hash(g.id, name)]; o != nil {
		t.standIn(o)
	}
	// If that was all that the last round of joins waited for, it ends.
	if o := t.ops[hash(g.id, joinName)]; o != nil && !o.votes[g.self].set && o.ready() {
		t.standing = append(t.standing, standing{op: o, verdict: t.declare(o)})
	}
}

// Settle says that a local rank brings nothing under a name that it owed when it joined, or removed a group: it is in a
// result already, or has failed.
func (e *Engine) Settle(epoch uint32, rank int, group uint32, name string) {
	e.mu.Lock()
	g := e.table.groups[group]
	if e.stopped != nil || epoch != e.world.Epoch || g == nil {
		e.mu.Unlock()
		return
	}
	if index := slices.Index(g.local(), rank); index >= 0 {
		e.table.settle(g, index, name)
	}
	var room [1]standing
	more := e.drain(room[:0])
	e.mu.Unlock()
	e.follow(more)
}

// standIn declares this host ready for an operation if only ranks that joined are missing, and reports whether it
// did. The verdict is in t.standing.
func (t *table) standIn(o *op) bool {
	if o.group.id != 0 || o.name == joinName || o.votes[o.group.self].set || !o.ready() || !o.wanted() {
		return false
	}
	v := t.declare(o)
	t.standing = append(t.standing, standing{op: o, verdict: v})
	return true
}

// stoodIn reports whether this host has spoken, or will when a pause ends, for local ranks that had joined: a part that
// one of them submits now is for the next use of the name.
func (o *op) stoodIn() bool {
	return o.votes[o.group.self].set || o.held && o.own.lacking()
}

// early is a part for the next use of a name.
type early struct {
	index int
	req   Request
}

// postponed reports whether a local rank has a part for the next use.
func (o *op) postponed(index int) bool {
	return slices.ContainsFunc(o.waiting, func(w early) bool { return w.index == index })
}

// resume begins the next use of a name, for which this host has parts.
func (t *table) resume(o *op) {
	n := t.fresh(o.group, o.id, o.name)
	n.votes, o.next = o.next, n.votes
	n.voted, o.ahead = o.ahead, 0
	for _, w := range o.waiting {
		n.own.put(w.index, &w.req)
	}
	o.waiting = o.waiting[:0]
	t.ops[o.id] = n
	if g := n.group; g.doomed(n.votes) {
		delete(t.ops, o.id)
		t.standing = append(t.standing, standing{op: n, verdict: verdict{err: g.left(n.announced(), n.name, g.gone[0])}})
		return
	}
	t.standIn(n)
}

// absent fills in for the local ranks that joined.
func (t *table) absent(o *op) {
	for i := range o.own.reqs {
		if !o.own.have[i] {
			o.own.reqs[i] = Request{Kind: Join, Name: o.name, Pre: 1, Post: 1, stamp: t.stamp}
		}
	}
}

// stampOf returns a time for a rank that joins, later than all that this host knows of whatever clocks say.
func (t *table) stampOf(r *Request) int {
	t.stamp = max(r.stamp, t.stamp+1)
	return t.stamp
}

// notice takes note of what a message says about ranks that joined, and returns how many rounds ahead it is.
func (t *table) notice(g *group, pos int, m *ready) int {
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
func (t *table) endRound(g *group) {
	if g.id != 0 {
		return // an operation that has the name of Join
	}
	clear(g.joined)
	clear(g.owes)
	for pos := range g.closed {
		g.closed[pos] = max(g.closed[pos]-1, 0)
	}
	for _, o := range t.ops {
		if o.group != g {
			continue
		}
		for pos := range o.votes {
			o.votes[pos].later = max(o.votes[pos].later-1, 0)
			o.next[pos].later = max(o.next[pos].later-1, 0)
		}
	}
}

// drain appends what stood in to all, with the messages to be sent. mu is held.
func (e *Engine) drain(all []standing) []standing {
	all = append(all, e.table.standing...)
	clear(e.table.standing)
	e.table.standing = e.table.standing[:0]
	for i := range all {
		o := all[i].op
		if all[i].verdict.announce {
			all[i].message = e.compose(o.group.hosts, o.group.self, o.id, o.votes[o.group.self].raw)
		}
	}
	return all
}

// follow inlines out what drain returned. No lock is held.
func (e *Engine) follow(all []standing) {
	for _, s := range all {
		e.post(s.message)
		e.act(s.op, s.verdict)
	}
}

// refuseJoined returns the error of an operation that needs a part of every rank.
func refuseJoined(kind Kind, name string) *Error {
	return &Error{Code: CodeMismatch, Text: kind.String() + " is not supported with Join at this time: " + name + " has no part of ranks that joined"}
}

// joins reports whether an operation can do without the ranks that joined.
func (k Kind) joins() bool { return k == Allreduce || k == Barrier }
