package collective

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// readiness finds out when an operation may start: when all ranks of its group have submitted their contributions, or
// have joined, and whether all of them submitted the same. It is pure, without I/O, clock or goroutine: the engine
// calls it with Engine.mu held, and carries out the events that it reports. It works on the engine's operations and
// groups, but knows nothing of how an operation is carried out, as strategies know nothing of it: what it leaves behind
// for them is the ballot of an op.
//
// Every host of a group declares to every other one what its ranks submitted.
//
// Two things keep it free of counters per name. Control messages of a peer come in the order in which
// they were sent, and a host declares itself ready for the next use of a name only after it finished the
// last one, which needs all hosts to have been ready for that: so the n-th message of a host about a name
// belongs to the n-th use, and no host is more than one use ahead.
type readiness struct {
	*operations
	groups *directory
	pausing
	serial uint32            // of the next declaration
	room   uint64            // for a result on this host, 0 if there is no limit
	names  map[string]string // that peers used
	stamp  int               // of the last rank that joined, as far as this host knows

	inlines inlining
}

// pausing is what this host does not declare before a pause is over.
type pausing struct {
	on   bool
	held []*op // complete, in the order in which they are to be declared
}

// declare reports to the other hosts what all local ranks submitted.
func (t *readiness) declare(o *op) {
	g := o.group
	alone := len(g.hosts) == 1
	if t.on && !alone {
		if !o.held {
			o.held = true
			t.held = append(t.held, o)
		}
		return
	}
	if o.own.lacking() {
		o.fillIn(t.stamp)
	}
	if !alone || !o.own.agree() {
		v := &o.votes[g.self]
		v.raw = appendReady(v.raw[:0], g.id, t.serial, o.own.reqs, g.local())
		if !alone && o.own.agree() {
			v.raw = t.inlines.append(v.raw, g, o.own.reqs, len(t.open))
		}
		binary.LittleEndian.PutUint64(v.raw[16:], t.room)
		v.ready, _ = splitReady(v.raw)
		t.serial++
	}
	o.stash.foreseen.Store(o.foresee())
	o.votes[g.self].set = true
	o.voted++
	if !alone {
		t.report(event{op: o, send: o.votes[g.self].raw, to: g.hosts})
	}
	t.decide(o)
}

// decide compares what all hosts declared, once they did, and has the operation start or fail.
func (t *readiness) decide(o *op) {
	if !o.full() {
		return
	}
	if o.name == joinName {
		t.endRound(o.group)
	}
	if err := t.check(o); err != nil {
		t.report(event{op: o, err: err})
		t.remove(o)
		return
	}
	// The first host's count distinguishes this use of the name from the others, on every host alike.
	o.gen = o.votes[0].serial
	t.report(event{op: o, start: true})
}

// check returns what is wrong with an operation whose contributions are all known, the same on all hosts.
func (t *readiness) check(o *op) *Error {
	if len(o.votes) == 1 && o.votes[0].variants == 0 { // of one host, whose ranks agree
		return o.lead().flaw(o.group)
	}
	joined, err := o.compare()
	if err != nil {
		return err
	}
	lead := o.lead()
	lead.Name = o.name // another host's contribution comes without one
	if err := lead.flaw(o.group); err != nil {
		return err
	}
	if err := o.unfit(); err != nil {
		return err
	}
	return t.inlines.check(o, lead, joined)
}

// remove ends a use of a name. What hosts declared about the next one, and what ranks of this host contributed to it,
// becomes its beginning.
func (t *readiness) remove(o *op) {
	g := o.group
	doomed := g.doomed(o.next)
	if len(o.waiting) == 0 && (o.ahead == 0 || g.removed || doomed) {
		delete(t.open, o.id)
		if g.removed {
			t.retire(g)
		}
		return
	}
	n := t.begin(g, o.id, o.name)
	n.startFrom(&o.ballot)
	t.recorder.ahead(n)
	for _, w := range o.waiting {
		n.own.put(w.index, &w.req)
		t.recorder.contributed(n, w.index)
	}
	o.waiting = o.waiting[:0]
	if doomed {
		delete(t.open, n.id)
		t.report(event{op: n, err: g.left(n.announced(), n.name, g.gone[0])})
		return
	}
	t.contributeZeros(n)
}

// doomed reports whether an operation with these votes can never start, because a rank left before its
// host was ready.
func (g *group) doomed(votes []vote) bool {
	return slices.ContainsFunc(g.gone, func(d departed) bool { return !votes[d.pos].set })
}

// contributeZeros declares this host ready for an operation if only ranks that joined are missing, and reports whether
// it did.
func (t *readiness) contributeZeros(o *op) bool {
	if o.group.id != 0 || o.name == joinName || o.declared(o.group.self) || !o.here() || !o.requested() {
		return false
	}
	t.declare(o)
	return true
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

// retire ends what can never start in a group that was removed, and forgets the group once nothing more can.
func (t *readiness) retire(g *group) {
	var failed []event
	awaited := slices.ContainsFunc(g.pending, func(names map[string]bool) bool { return len(names) > 0 })
	for _, o := range t.open {
		switch {
		case o.group != g || o.full():
		case o.promised():
			awaited = true
		default:
			failed = append(failed, event{op: o, err: &Error{Code: CodeInvalid,
				Text: fmt.Sprintf("%s %q: process set %d was removed before all its ranks submitted their parts", o.announced(), o.name, g.id)}})
		}
	}
	if !awaited {
		delete(t.groups.byID, g.id)
	}
	t.fail(failed)
}

// fail ends operations that cannot start, in the order of names.
func (t *readiness) fail(all []event) {
	slices.SortFunc(all, func(a, b event) int { return strings.Compare(a.op.name, b.op.name) })
	for _, e := range all {
		delete(t.open, e.op.id)
		t.report(e)
	}
}
