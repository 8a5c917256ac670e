package collective

import (
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// Adasum weighs whole tensors against each other, so it does not go by segments like other reductions. The ranks of
// a host are combined first, in pairs of neighbours, then hosts by recursive distance doubling (schedule.Ladder).
// Both ends of an exchange compute the same from the same two vectors in the same order: all ranks get the same bits.
// What is sent stays where it is until the peer has it, so every level has memory of its own: log₂ of the number of
// hosts times two tensors.

// climb is where an Adasum stands.
type climb struct {
	rungs  []schedule.Rung
	rung   int // the next one
	busy   bool
	space  []byte // vectors, of stride bytes each
	stride int64
	left   []int32 // per rung: segments that are missing
	places []int64 // per step: where its vector is in space
}

// layoutAdasum combines what this host has.
func (o *op) layoutAdasum(g *group, r *Request) {
	c := &o.climb
	o.steps, c.rungs = schedule.Ladder(o.steps, c.rungs[:0], len(g.hosts), g.self, o.size)
	c.rung, c.busy = 0, false
	c.stride = (o.size + schedule.Align - 1) &^ (schedule.Align - 1)
	c.space = resize(c.space, (len(o.ins)+2*len(c.rungs))*int(c.stride))
	for i, in := range o.ins {
		o.scaled(r.Pre, in, c.vector(int64(i)*c.stride, o.size))
	}
	for n := 1; n < len(o.ins); n *= 2 {
		for i := 0; i+n < len(o.ins); i += 2 * n {
			a, b := c.vector(int64(i)*c.stride, o.size), c.vector(int64(i+n)*c.stride, o.size)
			kernel.Combine(r.Type, a, a, b)
		}
	}
	c.places = resize(c.places, len(o.steps))
	clear(c.places)
	c.left = resize(c.left, len(c.rungs))
	for i := range c.rungs {
		rung := &c.rungs[i]
		c.places[rung.Receive] = c.got(i, len(o.ins))
		if rung.Send >= 0 {
			c.places[rung.Send] = c.made(i, len(o.ins))
		}
		c.left[i] = int32((o.size + o.engine.segment - 1) / o.engine.segment)
	}
	if len(c.rungs) == 0 {
		o.scaled(r.Post, c.vector(0, o.size), o.outs...)
	}
}

// vector returns the one at a place.
func (c *climb) vector(at, size int64) []byte { return c.space[at : at+size : at+size] }

// got and made are where the vector of a rung is received, and what it is combined to.
func (c *climb) got(rung, inputs int) int64  { return int64(inputs+2*rung) * c.stride }
func (c *climb) made(rung, inputs int) int64 { return c.got(rung, inputs) + c.stride }

// scaled writes a multiple of a vector to some places.
func (o *op) scaled(by float64, src []byte, to ...[]byte) {
	p := kernel.Plan{Type: o.last.Type, Op: kernel.Sum, Pre: 1, Post: by}
	v := o.engine.view()
	v.dst, v.src = append(v.dst, to...), append(v.src, src)
	p.Reduce(v.dst, nil, v.src)
	o.engine.views.Put(v)
}

// climbs reports whether an op goes rung by rung.
func (o *op) climbs() bool { return o.kind == Allreduce && o.last.Op == kernel.Adasum }

// ascend counts a segment of a rung, and carries out the rungs that are complete.
func (o *op) ascend(step int) {
	c := &o.climb
	o.mu.Lock()
	for i := range c.rungs {
		if c.rungs[i].Receive == step {
			c.left[i]--
		}
	}
	for !c.busy && c.rung < len(c.rungs) && c.left[c.rung] == 0 {
		c.busy = true
		o.mu.Unlock()
		o.combineRung(c.rung)
		o.mu.Lock()
		c.busy = false
		c.rung++
	}
	o.mu.Unlock()
}

// combineRung combines what a rung received with what there is, and sends it on.
func (o *op) combineRung(i int) {
	c, inputs := &o.climb, len(o.ins)
	rung := &c.rungs[i]
	have := c.vector(0, o.size)
	if i > 0 {
		have = c.vector(c.made(i-1, inputs), o.size)
	}
	got, made := c.vector(c.got(i, inputs), o.size), c.vector(c.made(i, inputs), o.size)
	switch {
	case rung.Final:
		made = got
	case rung.Lower:
		kernel.Combine(o.last.Type, made, got, have)
	default:
		kernel.Combine(o.last.Type, made, have, got)
	}
	if i == len(c.rungs)-1 {
		o.scaled(o.last.Post, made, o.outs...)
	}
	if rung.Send >= 0 {
		for lo := int64(0); lo < o.size; lo += o.engine.segment {
			o.queue(rung.Send, lo)
		}
	}
}
