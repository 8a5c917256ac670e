package collective

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// readiness is the negotiation in which every host declares to every other one.
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

	inlines func(n int64, ranks, hosts int) bool // Engine.inlines
	view    view                                 // for the arguments of a kernel
}

// pausing is what this host does not declare before a pause is over.
type pausing struct {
	on   bool
	held []*op // complete, in the order in which they are to be declared
}

// pause implements negotiation.
func (t *readiness) pause(on bool) {
	held := t.held
	t.pausing = pausing{on: on}
	for _, o := range held {
		if t.open[o.id] == o && o.held { // it may have failed meanwhile
			o.held = false
			t.declare(o)
		}
	}
}

// submit implements negotiation.
func (t *readiness) submit(g *group, index int, r Request) *Error {
	id := hash(g.id, r.Name)
	o := t.open[id]
	if err := t.refuses(g, o, index, &r); err != nil {
		return err
	}
	if o == nil {
		o = t.begin(g, id, r.Name)
	}
	if t.closed(o) {
		w := early{index, r}
		w.req.Splits = slices.Clone(r.Splits)
		o.waiting = append(o.waiting, w)
		t.resolve(g, index, r.Name)
		return nil
	}
	o.own.put(index, &r)
	if r.Kind == RemoveGroup {
		t.groups.pend(uint32(r.Root), g.local()[index], r.Pending)
	}
	if r.Kind == Join {
		o.own.reqs[index].stamp = t.stampOf(&r)
		t.join(g, index, r.Pending)
	}
	if t.ready(o) {
		t.declare(o)
	}
	t.resolve(g, index, r.Name)
	return nil
}

// refuses returns why a local rank cannot submit something now; o is what is open under its name, if anything is.
func (t *readiness) refuses(g *group, o *op, index int, r *Request) *Error {
	rank, pending := g.local()[index], g.pending[index][r.Name]
	switch {
	case g.removed && !pending:
		return refuse("%s %q: process set %d was removed", r.Kind, r.Name, g.id)
	case g.id != 0 && !pending && t.removes(rank, g.id):
		return refuse("%s %q: rank %d has removed process set %d", r.Kind, r.Name, rank, g.id)
	case g.joined[index] && !pending:
		return refuse("%s %q: rank %d has joined, and can submit nothing until all ranks have", r.Kind, r.Name, rank)
	case o == nil && len(g.gone) > 0:
		return g.left(r.Kind, r.Name, g.gone[0])
	case o == nil:
	case o.name != r.Name || o.group != g:
		return refuse("%s %q: cannot be told apart from %q, change the name", r.Kind, r.Name, o.name)
	case o.own.have[index] || t.postponed(o, index):
		return refuse("%s %q: rank %d has an operation of this name in flight", r.Kind, r.Name, rank)
	}
	return nil
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
		t.fillIn(o)
	}
	if !alone || !o.own.agree() {
		v := &o.votes[g.self]
		v.raw = appendReady(v.raw[:0], g.id, t.serial, o.own.reqs, g.local())
		if !alone && o.own.agree() {
			v.raw = t.appendInline(v.raw, g, o.own.reqs)
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

// hear implements negotiation: the message is a ready message.
func (t *readiness) hear(peer int, p []byte) error {
	m, err := readReady(p)
	if err != nil {
		return err
	}
	g := t.groups.find(m.group)
	if g == nil {
		return fmt.Errorf("no group %d", m.group)
	}
	pos := g.position(peer)
	if pos < 0 || pos == g.self || !m.from(g.hosts[pos].Ranks) {
		return fmt.Errorf("%q: not the ranks of host %d in group %d", m.name, peer, m.group)
	}
	id := hash(g.id, m.name)
	o := t.open[id]
	if o == nil {
		if g.over(m.name) {
			return fmt.Errorf("%q: group %d was removed", m.name, m.group)
		}
		if len(g.gone) > 0 {
			return nil // the sender does not know yet that a member left
		}
		o = t.begin(g, id, t.nameOf(m.name))
	}
	later := t.notice(g, pos, &m)
	v := &o.votes[pos]
	ahead := v.set
	if ahead {
		if v = &o.next[pos]; v.set {
			return fmt.Errorf("%q: host %d is two uses ahead", m.name, peer)
		}
		o.ahead++
	} else {
		o.voted++
	}
	v.set, v.later = true, later
	v.raw = append(v.raw[:0], p...)
	v.ready, _ = splitReady(v.raw)
	if !ahead && !t.contributeZeros(o) {
		t.decide(o)
	}
	return nil
}

// maxNames bounds how many names it remembers; when there are more it starts over.
const maxNames = 8192

// nameOf returns a name that a peer sent, the same string for the same name.
func (t *readiness) nameOf(b []byte) string {
	name, ok := t.names[string(b)]
	if !ok {
		if t.names == nil || len(t.names) >= maxNames {
			t.names = map[string]string{}
		}
		name = string(b)
		t.names[name] = name
	}
	return name
}

// from reports whether a message is about exactly the given ranks.
func (m *ready) from(ranks []int) bool {
	rest, count := m.body, 0
	for range m.variants {
		var v variant
		v, rest, _ = readVariant(rest)
		for i := range v.count() {
			r, _ := v.rank(i)
			if !slices.Contains(ranks, r) {
				return false
			}
			count++
		}
	}
	return count == len(ranks)
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
	return t.checkInline(o, lead, joined)
}

// finish implements negotiation.
func (t *readiness) finish(o *op) {
	if t.open[o.id] != o {
		return
	}
	if o.name == groupsName {
		if r := o.lead(); r.Kind == RemoveGroup {
			t.drop(uint32(r.Root))
		}
	}
	t.remove(o)
}

// remove ends a use of a name. What hosts declared about the next one becomes its beginning.
func (t *readiness) remove(o *op) {
	if len(o.waiting) > 0 {
		t.resume(o)
		return
	}
	if o.ahead == 0 || o.group.removed || o.group.doomed(o.next) {
		delete(t.open, o.id)
		if o.group.removed {
			t.retire(o.group)
		}
		return
	}
	n := t.begin(o.group, o.id, o.name)
	n.startFrom(&o.ballot)
	t.contributeZeros(n)
}

// doomed reports whether an operation with these votes can never start, because a rank left before its
// host was ready.
func (g *group) doomed(votes []vote) bool {
	return slices.ContainsFunc(g.gone, func(d departed) bool { return !votes[d.pos].set })
}

// leave implements negotiation. Operations fail in the order of their names.
func (t *readiness) leave(rank int) {
	var failed []event
	for _, g := range t.groups.byID {
		at, ok := g.find(rank)
		d := departed{rank, at.pos}
		if !ok || slices.Contains(g.gone, d) {
			continue
		}
		g.gone = append(g.gone, d)
		for id, o := range t.open {
			if o.group == g && !o.votes[d.pos].set {
				failed = append(failed, event{op: o, err: g.left(o.announced(), o.name, d)})
				delete(t.open, id)
			}
		}
		if g.removed {
			if at.pos == g.self {
				clear(g.pending[at.index])
			}
			t.retire(g)
		}
	}
	slices.SortFunc(failed, func(a, b event) int { return strings.Compare(a.op.name, b.op.name) })
	t.events = append(t.events, failed...)
}
