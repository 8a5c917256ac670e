package collective

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// vote is what one host of a group said about an operation.
type vote struct {
	set   bool
	later int    // rounds of joining that its host is ahead (join.go)
	raw   []byte // kept for its memory
	ready
}

func (v *vote) clear() { *v = vote{raw: v.raw[:0]} }

// verdict is what an event means for the operation it concerned.
type verdict struct {
	announce bool // tell the other hosts what ours submitted
	start    bool // all hosts agree
	err      *Error
}

// table holds the operations that are not finished and moves them from the first part to the verdict.
// It is pure: no I/O, clock or goroutine; its owner serialises the calls and acts on the verdicts.
//
// Two things keep it free of counters per name. Control messages of a peer come in the order in which
// they were sent, and a host declares itself ready for the next use of a name only after it finished the
// last one, which needs all hosts to have been ready for that: so the n-th message of a host about a name
// belongs to the n-th use, and nobody is more than one use ahead.
type table struct {
	groups   map[uint32]*group // with ranks on this host
	sets     map[uint32][]int  // ranks of all groups
	next     uint32            // number of the next group
	declared int               // groups that only their members know of
	ops      map[uint64]*op
	fresh    func(g *group, id uint64, name string) *op
	serial   uint32
	// inlines reports whether an allreduce of n bytes between that many hosts is done by ready messages.
	inlines func(n int64, hosts int) bool
	room    uint64            // for a result on this host, 0 if there is no limit
	names   map[string]string // that peers spoke of
	view    view              // for the arguments of a kernel
	zeros   [maxInline]byte

	stamp    int // of the last rank that joined, as far as this host knows
	standing []standing

	gate gate
	live int // operations between hosts that started, until the link holds nothing of them
	// lasting are those of them that are not in ops any more: they have their results, and peers may not have all that was
	// sent of them.
	lasting []*op
}

// keep adds to lasting.
func (t *table) keep(o *op) {
	o.lasts = len(t.lasting)
	t.lasting = append(t.lasting, o)
}

// release takes out of lasting what keep added.
func (t *table) release(o *op) {
	last := len(t.lasting) - 1
	t.lasting[o.lasts] = t.lasting[last]
	t.lasting[o.lasts].lasts = o.lasts
	t.lasting[last] = nil
	t.lasting = t.lasting[:last]
}

// submit adds the part of the index-th local rank of g.
func (t *table) submit(g *group, index int, r *Request) (*op, verdict, *Error) {
	id := hash(g.id, r.Name)
	o := t.ops[id]
	switch {
	case g.removed && !g.owes[index][r.Name]:
		return nil, verdict{}, refuse("%s %q: process set %d was removed", r.Kind, r.Name, g.id)
	case g.id != 0 && t.removes(g.local()[index], g.id) && !g.owes[index][r.Name]:
		return nil, verdict{}, refuse("%s %q: rank %d has removed process set %d", r.Kind, r.Name, g.local()[index], g.id)
	case g.joined[index] && !g.owes[index][r.Name]:
		return nil, verdict{}, refuse("%s %q: rank %d has joined, and can submit nothing until all ranks have", r.Kind, r.Name, g.local()[index])
	case o == nil && len(g.gone) > 0:
		return nil, verdict{}, g.left(r.Kind, r.Name, g.gone[0])
	case o == nil:
		o = t.fresh(g, id, r.Name)
		t.ops[id] = o
	case o.name != r.Name || o.group != g:
		return nil, verdict{}, refuse("%s %q: cannot be told apart from %q, change the name", r.Kind, r.Name, o.name)
	case o.own.have[index] || o.postponed(index):
		return nil, verdict{}, refuse("%s %q: rank %d has an operation of this name in flight", r.Kind, r.Name, g.local()[index])
	}
	if o.stoodIn() {
		w := early{index, *r}
		w.req.Splits = slices.Clone(r.Splits)
		o.waiting = append(o.waiting, w)
		t.settle(g, index, r.Name)
		return o, verdict{}, nil
	}
	o.own.put(index, r)
	if r.Kind == RemoveGroup {
		t.oweTo(uint32(r.Root), g.local()[index], r.Owes)
	}
	if r.Kind == Join {
		o.own.reqs[index].stamp = t.stampOf(r)
		t.join(g, index, r.Owes)
	}
	var v verdict
	if o.ready() {
		v = t.declare(o)
	}
	t.settle(g, index, r.Name)
	return o, v, nil
}

// declare says what all local ranks submitted.
func (t *table) declare(o *op) verdict {
	g := o.group
	alone := len(g.hosts) == 1
	if t.gate.number > 0 && !alone {
		t.hold(o)
		return verdict{}
	}
	if o.own.lacking() {
		t.absent(o)
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
	out := t.decide(o)
	out.announce = !alone
	return out
}

// hear takes a ready message of the host at a position.
func (t *table) hear(peer int, p []byte) (*op, verdict, error) {
	m, err := readReady(p)
	if err != nil {
		return nil, verdict{}, err
	}
	g := t.group(m.group)
	if g == nil {
		return nil, verdict{}, fmt.Errorf("no group %d", m.group)
	}
	pos := g.position(peer)
	if pos < 0 || pos == g.self || !m.from(g.hosts[pos].Ranks) {
		return nil, verdict{}, fmt.Errorf("%q: not the ranks of host %d in group %d", m.name, peer, m.group)
	}
	id := hash(g.id, m.name)
	o := t.ops[id]
	if o == nil {
		if g.over(m.name) {
			return nil, verdict{}, fmt.Errorf("%q: group %d was removed", m.name, m.group)
		}
		if len(g.gone) > 0 {
			return nil, verdict{}, nil // the sender does not know yet that a member left
		}
		o = t.fresh(g, id, t.nameOf(m.name))
		t.ops[id] = o
	}
	later := t.notice(g, pos, &m)
	v := &o.votes[pos]
	if v.set {
		if v = &o.next[pos]; v.set {
			return nil, verdict{}, fmt.Errorf("%q: host %d is two uses ahead", m.name, peer)
		}
		o.ahead++
	} else {
		o.voted++
	}
	v.set, v.later = true, later
	v.raw = append(v.raw[:0], p...)
	v.ready, _ = splitReady(v.raw)
	if v != &o.votes[pos] {
		return o, verdict{}, nil
	}
	if t.standIn(o) {
		return o, verdict{}, nil
	}
	return o, t.decide(o), nil
}

// maxNames bounds how many names a table remembers; when there are more it starts over.
const maxNames = 8192

// nameOf returns a name that a peer sent, the same string for the same name.
func (t *table) nameOf(b []byte) string {
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

// from reports whether a message tells of exactly the given ranks.
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

// decide compares what all hosts said, once they did.
func (t *table) decide(o *op) verdict {
	if o.voted < len(o.votes) {
		return verdict{}
	}
	if len(o.votes) == 1 && o.votes[0].variants == 0 {
		if o.name == joinName {
			t.endRound(o.group)
		}
		if err := o.lead().flaw(o.group); err != nil {
			t.remove(o)
			return verdict{err: err}
		}
		return verdict{start: true}
	}
	if o.name == joinName {
		t.endRound(o.group)
	}
	var first []byte // what the first rank with a part submitted
	joined := false
	for i := range o.votes {
		v := &o.votes[i]
		if string(v.name) != o.name {
			t.remove(o)
			return verdict{err: collision(o.name, v.name)}
		}
		rest := v.body
		for range v.variants {
			var theirs variant
			theirs, rest, _ = readVariant(rest)
			switch {
			case theirs.kind() == Join && o.name != joinName:
				joined = true
			case first == nil:
				first = theirs.signature
			case !bytes.Equal(first, theirs.signature):
				err := mismatch(o.group, o.name, o.votes)
				t.remove(o)
				return verdict{err: err}
			}
		}
	}
	if kind := Kind(first[0]); joined && !kind.joins() {
		t.remove(o)
		return verdict{err: refuseJoined(kind, o.name)}
	}
	lead := o.lead()
	lead.Name = o.name // of another host's part it is not known
	if err := lead.flaw(o.group); err != nil {
		t.remove(o)
		return verdict{err: err}
	}
	if err := o.unfit(); err != nil {
		t.remove(o)
		return verdict{err: err}
	}
	// A host whose ranks all joined sent no part: then nobody's counts, and zeros stand in for it as ever.
	if o.inline = !joined && len(o.votes[o.group.self].inline) > 0; !joined {
		for pos := range o.votes {
			if err := o.checkInline(pos); err != nil {
				t.remove(o)
				return verdict{err: err}
			}
		}
	}
	if len(o.votes) > 1 {
		t.live++
	}
	// The first host's count tells this use of the name from the others, on every host alike.
	o.gen = o.votes[0].serial
	return verdict{start: true}
}

// remove ends a use of a name. What hosts said about the next one becomes its beginning.
func (t *table) remove(o *op) {
	if t.ops[o.id] != o {
		return
	}
	if len(o.waiting) > 0 {
		t.resume(o)
		return
	}
	if o.ahead == 0 || o.group.removed || o.group.doomed(o.next) {
		delete(t.ops, o.id)
		if o.group.removed {
			t.retire(o.group)
		}
		return
	}
	n := t.fresh(o.group, o.id, o.name)
	n.votes, o.next = o.next, n.votes
	n.voted, o.ahead = o.ahead, 0
	t.ops[o.id] = n
	t.standIn(n)
}

// doomed reports whether an operation with these votes can never start, because a rank left before its
// host was ready.
func (g *group) doomed(votes []vote) bool {
	return slices.ContainsFunc(g.gone, func(d departed) bool { return !votes[d.pos].set })
}

// failure is an operation that ends before it started.
type failure struct {
	op  *op
	err *Error
}

// leave takes note that a rank takes part in nothing any more and returns the operations that cannot
// start without it, in the order of their names.
func (t *table) leave(rank int) []failure {
	var failed []failure
	for _, g := range t.groups {
		at, ok := g.find(rank)
		d := departed{rank, at.pos}
		if !ok || slices.Contains(g.gone, d) {
			continue
		}
		g.gone = append(g.gone, d)
		for id, o := range t.ops {
			if o.group == g && !o.votes[d.pos].set {
				failed = append(failed, failure{o, g.left(o.announced(), o.name, d)})
				delete(t.ops, id)
			}
		}
		if g.removed {
			if at.pos == g.self {
				clear(g.owes[at.index])
			}
			t.retire(g)
		}
	}
	slices.SortFunc(failed, func(a, b failure) int { return strings.Compare(a.op.name, b.op.name) })
	return failed
}

// announced returns what the op is as far as is known.
func (o *op) announced() Kind {
	for i := range o.own.reqs {
		if o.own.have[i] {
			return o.own.reqs[i].Kind
		}
	}
	for i := range o.votes {
		if v := &o.votes[i]; v.set && v.real() {
			return v.kind()
		}
	}
	return 0
}
