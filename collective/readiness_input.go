package collective

import (
	"fmt"
	"slices"
)

// What readiness takes: contributions of this host's ranks, declarations of other hosts, and ranks that leave, join or
// remove a group. What follows from it is in readiness.go.

// submit takes the contribution of the index-th local rank of a group.
func (t *readiness) submit(g *group, index int, r Request) *Error {
	id := hash(g.id, r.Name)
	o := t.open[id]
	if err := t.refuses(g, o, index, &r); err != nil {
		return err
	}
	if o == nil {
		o = t.begin(g, id, r.Name)
	}
	if o.closed() {
		w := early{index, r}
		w.req.Splits = slices.Clone(r.Splits)
		o.waiting = append(o.waiting, w)
		t.resolve(g, index, r.Name)
		return nil
	}
	o.own.put(index, &r)
	t.recorder.contributed(o, index)
	if r.Kind == RemoveGroup {
		t.groups.pend(uint32(r.Root), g.local()[index], r.Pending)
	}
	if r.Kind == Join {
		o.own.reqs[index].stamp = t.stampOf(&r)
		t.join(g, index, r.Pending)
	}
	if o.here() {
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
	case o.own.have[index] || o.postponed(index):
		return refuse("%s %q: rank %d has an operation of this name in flight", r.Kind, r.Name, rank)
	}
	return nil
}

// hear takes what another host declared, in the order in which it did.
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
	if !ahead {
		t.recorder.heard(o, pos)
	}
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
	count := 0
	for v := range m.all() {
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

// notice takes note of the ranks that joined according to a message, and returns how many rounds ahead it is.
func (t *readiness) notice(g *group, pos int, m *ready) int {
	later := g.closed[pos]
	for v := range m.all() {
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

// join marks a rank as joined, and declares it ready for what others wait for.
func (t *readiness) join(g *group, index int, names []string) {
	g.joined[index] = true
	g.pend(index, names)
	for _, o := range t.open {
		t.contributeZeros(o)
	}
}

// stampOf returns a time for a rank that joins, later than all that this host knows of, whatever its clock shows.
func (t *readiness) stampOf(r *Request) int {
	t.stamp = max(r.stamp, t.stamp+1)
	return t.stamp
}

// resolve takes note that a local rank contributes nothing under a name that was pending when it joined or removed
// the group.
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
	if o := t.open[hash(g.id, joinName)]; o != nil && !o.declared(g.self) && o.here() {
		t.declare(o)
	}
}

// leave takes note that a rank, of any host, takes part in nothing any more. What cannot start without it fails.
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
	t.fail(failed)
}

// pause keeps what this host would declare from now on, or declares what was kept.
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

// finish ends a use of a name: what was heard of the next one becomes its beginning.
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

// removes reports whether a local rank has submitted that a group shall be removed, which is not over.
func (t *readiness) removes(rank int, id uint32) bool {
	o := t.open[hash(0, groupsName)]
	if o == nil {
		return false
	}
	i := slices.Index(o.group.local(), rank)
	return i >= 0 && o.own.have[i] && o.own.reqs[i].Kind == RemoveGroup && o.own.reqs[i].Root == int(id)
}

// drop removes a group that all hosts agreed to remove.
func (t *readiness) drop(id uint32) {
	delete(t.groups.sets, id)
	if g := t.groups.byID[id]; g != nil {
		g.removed = true
		t.retire(g)
	}
}
