package collective

import "slices"

// central is a negotiation that only tests know: every host declares to the first one of the group, which sends all of
// them everything once it is complete. It shows what another negotiation is: a file like this one, and nothing of it in
// an op, a strategy or the engine. It knows no rank that joins, leaves or removes a group, and no pause.
type central struct {
	*operations
	groups *directory
	serial uint32
}

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

// submit declares the contributions of this host's ranks to the first host once they are complete.
func (c *central) submit(g *group, index int, r Request) *Error {
	id := hash(g.id, r.Name)
	o := c.open[id]
	if o == nil {
		o = c.begin(g, id, r.Name)
	}
	if o.own.have[index] {
		return refuse("%s %q: rank %d has an operation of this name in flight", r.Kind, r.Name, g.local()[index])
	}
	o.own.put(index, &r)
	if o.own.lacking() {
		return nil
	}
	v := &o.votes[g.self]
	v.set, v.raw = true, appendReady(v.raw[:0], g.id, c.serial, o.own.reqs, g.local())
	v.ready, _ = splitReady(v.raw)
	c.serial++
	o.voted++
	o.stash.foreseen.Store(o.foresee())
	if g.self > 0 {
		c.report(event{op: o, send: v.raw, to: g.hosts[:1]})
	}
	c.decide(o)
	return nil
}

// hear takes what a host declared, from itself or by way of the first host.
func (c *central) hear(_ int, p []byte) error {
	m, err := readReady(p)
	if err != nil {
		return err
	}
	g, id := c.groups.find(m.group), hash(m.group, m.name)
	v, _, _ := readVariant(m.body)
	rank, _ := v.rank(0)
	from, _ := g.find(rank)
	if from.pos == g.self {
		return nil
	}
	o := c.open[id]
	if o == nil {
		o = c.begin(g, id, string(m.name))
	}
	vote, count := &o.votes[from.pos], &o.voted
	if vote.set {
		vote, count = &o.next[from.pos], &o.ahead
	}
	*count++
	vote.set, vote.raw = true, append(vote.raw[:0], p...)
	vote.ready, _ = splitReady(vote.raw)
	if count == &o.voted {
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
	for _, v := range o.votes {
		if g.self == 0 && len(g.hosts) > 1 {
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
	if c.open[o.id] != o {
		return
	}
	delete(c.open, o.id)
	if o.ahead > 0 {
		c.begin(o.group, o.id, o.name).startFrom(&o.ballot)
	}
}

func (c *central) resolve(*group, int, string) {} // no contribution is ever pending

func (c *central) leave(int) { panic("a rank leaves a world that negotiates centrally") }

func (c *central) pause(bool) { panic("a world that negotiates centrally pauses") }
