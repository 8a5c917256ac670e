package collective

import (
	"encoding/binary"
	"slices"
)

// central is a negotiation that only tests know: every host declares to the first one of the group, the one with the
// lowest id, which sends all of them everything once it is complete. It shows what another negotiation is: a file like
// this one, and nothing of it in an op, a strategy or the engine. It knows no rank that joins or removes a group.
type central struct {
	*operations
	groups *directory
	serial uint32
	paused bool
	held   []*op // in a pause: complete on this host; on the first one, complete on all
}

// Messages of a central negotiation beside declarations, about an operation that a rank has left behind.
const (
	msgAsk  = 100 // to the first host: does it still come?
	msgGone = 101 // from the first host: it does not
)

// UseCentral has an engine negotiate by way of the first host, and returns how many operations it opened so.
func UseCentral(e *Engine) (opened func() int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &central{operations: &e.ops, groups: e.groups}
	e.negotiation = c
	return func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return int(c.serial)
	}
}

// firstHost returns the position of the host that all others declare to, in whatever order hosts are.
func firstHost(g *group) (pos int) {
	for i, h := range g.hosts {
		if h.ID < g.hosts[pos].ID {
			pos = i
		}
	}
	return pos
}

// open returns the operation under a name.
func (c *central) open(g *group, name string) *op {
	id := hash(g.id, name)
	if o := c.operations.open[id]; o != nil {
		return o
	}
	return c.begin(g, id, name)
}

// submit declares the contributions of this host's ranks to the first host once they are complete.
func (c *central) submit(g *group, index int, r Request) *Error {
	o := c.open(g, r.Name)
	if o.own.have[index] {
		return refuse("%s %q: rank %d has an operation of this name in flight", r.Kind, r.Name, g.local()[index])
	}
	o.own.put(index, &r)
	switch {
	case c.miss(o) || o.own.lacking():
	case c.paused:
		c.held = append(c.held, o)
	default:
		c.declare(o)
	}
	return nil
}

func (c *central) declare(o *op) {
	g := o.group
	v := &o.votes[g.self]
	v.set, v.raw = true, appendReady(v.raw[:0], g.id, c.serial, o.own.reqs, g.local())
	v.ready, _ = splitReady(v.raw)
	c.serial++
	o.voted++
	o.stash.foreseen.Store(o.foresee())
	if first := firstHost(g); g.self != first {
		c.report(event{op: o, send: v.raw, to: g.hosts[first : first+1]})
	}
	c.decide(o)
}

// hear takes what a host declared, from itself or by way of the first host.
func (c *central) hear(_ int, p []byte) error {
	if p[0] == msgAsk || p[0] == msgGone {
		c.hearAboutLeft(p)
		return nil
	}
	m, err := readReady(p)
	if err != nil {
		return err
	}
	g := c.groups.find(m.group)
	v, _, _ := readVariant(m.body)
	rank, _ := v.rank(0)
	from, _ := g.find(rank)
	if from.pos == g.self {
		return nil
	}
	o := c.open(g, string(m.name))
	vote, count := &o.votes[from.pos], &o.voted
	if vote.set {
		vote, count = &o.next[from.pos], &o.ahead
	}
	*count++
	vote.set, vote.raw = true, append(vote.raw[:0], p...)
	vote.ready, _ = splitReady(vote.raw)
	if count == &o.voted && !c.miss(o) {
		c.decide(o)
	}
	return nil
}

// decide has an operation start or fail when everything is known of it. The first host passes it on before.
func (c *central) decide(o *op) {
	g := o.group
	if !o.full() {
		return
	}
	if g.self == firstHost(g) && len(g.hosts) > 1 {
		if c.paused {
			c.held = append(c.held, o)
			return
		}
		for _, v := range o.votes {
			c.report(event{op: o, send: slices.Clone(v.raw), to: g.hosts})
		}
	}
	if _, err := o.compare(); err != nil {
		c.report(event{op: o, err: err})
		c.finish(o)
		return
	}
	if err := o.lead().flaw(g); err != nil {
		c.report(event{op: o, err: err})
		c.finish(o)
		return
	}
	o.gen = o.votes[0].serial
	c.report(event{op: o, start: true})
}

// finish makes what was heard of the next use of the name its beginning.
func (c *central) finish(o *op) {
	if c.operations.open[o.id] != o {
		return
	}
	delete(c.operations.open, o.id)
	if o.ahead > 0 || len(o.group.gone) > 0 {
		next := c.begin(o.group, o.id, o.name)
		next.startFrom(&o.ballot)
		if !c.miss(next) && next.voted == 0 {
			delete(c.operations.open, o.id)
		}
	}
}

func (c *central) resolve(*group, int, string) {} // no contribution is ever pending

// pause holds what this host would declare; on the first host, what it would pass on.
func (c *central) pause(on bool) {
	held := c.held
	c.paused, c.held = on, nil
	for _, o := range held {
		switch {
		case c.operations.open[o.id] != o:
		case o.declared(o.group.self):
			c.decide(o)
		default:
			c.declare(o)
		}
	}
}

// leave fails what lacks the rank's host. Only the first host knows.
func (c *central) leave(rank int) {
	for _, g := range c.groups.byID {
		if at, ok := g.find(rank); ok {
			g.gone = append(g.gone, departed{rank, at.pos})
			for _, o := range c.operations.open {
				if o.group == g {
					c.miss(o)
				}
			}
		}
	}
}

// miss fails an operation on the first host if a rank has left whose host did not declare it, and reports whether it
// did. Another host that lacks contributions asks the first one.
func (c *central) miss(o *op) bool {
	g, first := o.group, firstHost(o.group)
	if g.self != first {
		if len(g.gone) > 0 && o.own.lacking() {
			c.report(event{op: o, send: appendAboutLeft(msgAsk, g, o.name, 0), to: g.hosts[first : first+1]})
		}
		return false
	}
	i := slices.IndexFunc(g.gone, func(d departed) bool { return !o.declared(d.pos) })
	if i >= 0 {
		c.report(event{op: o, send: appendAboutLeft(msgGone, g, o.name, g.gone[i].rank), to: g.hosts})
		c.fail(o, g.gone[i])
	}
	return i >= 0
}

func (c *central) fail(o *op, d departed) {
	c.report(event{op: o, err: o.group.left(o.announced(), o.name, d)})
	delete(c.operations.open, o.id)
}

func (c *central) hearAboutLeft(p []byte) {
	g, rank, name := c.groups.find(binary.LittleEndian.Uint32(p[4:])), int(binary.LittleEndian.Uint32(p[8:])), string(p[12:])
	if p[0] == msgAsk {
		c.miss(c.open(g, name))
		return
	}
	if o := c.operations.open[hash(g.id, name)]; o != nil && !o.full() {
		at, _ := g.find(rank)
		c.fail(o, departed{rank, at.pos})
	}
}

func appendAboutLeft(kind byte, g *group, name string, rank int) []byte {
	p := binary.LittleEndian.AppendUint32([]byte{kind, 0, 0, 0}, g.id)
	return append(binary.LittleEndian.AppendUint32(p, uint32(rank)), name...)
}
