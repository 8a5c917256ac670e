package collective

import (
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// Sums of float32 and float64 may travel in fewer bytes than they have (kernel.Coding), if the job or the request
// says so. Between the ranks of a host nothing travels, and nothing is lost.
//
// The steps of an algorithm stay as they are. Beside acc, an op has its coded image: whatever a step sends is made
// there, and a received result is read to there. Partials are decoded, added up and coded again by tiles that stay in
// the cache. A result is coded once, by the host that finishes it: it takes the decoded form itself, and all others pass
// the same bytes on. So all ranks have the same bits.
//
// In recursive doubling both ends of an exchange add the same two partials: there the sender goes on with what the
// other one decodes (mirrored).
//
// The rest is as if a sum of H hosts was rounded H times: it is off by at most H times what a coding does to the sum
// of the inputs' sizes. An average is divided before it travels, so that it cannot overflow where its inputs do not.
//
// What is so small that it goes with the ready messages (carry.go) is not coded.

// CodingOf returns how the elements of a request travel between hosts, CodingDefault if as they are. All ranks must have
// the same in common, by whichever way they came to it.
func (e *Engine) CodingOf(r Request) kernel.Coding {
	c := r.Coding
	if c == kernel.CodingDefault {
		c = e.coding
	}
	if !r.Kind.reduces() || r.Op != kernel.Sum && r.Op != kernel.Average || !c.Codes(r.Type) {
		return kernel.CodingDefault
	}
	return c
}

// coded is what an op has if it is coded.
type coded struct {
	coding   kernel.Coding // CodingNone if it is not
	typ      kernel.Type
	image    []byte // of acc
	mirrored bool
	keeps    bool // partials are needed in acc too
	shared   bool // what Finish makes is sent on
}

func (c *coded) on() bool { return c.coding > kernel.CodingNone }

// tile is the bytes of a tensor that are decoded, added and coded at once.
const tile = 16 << 10

type tiles struct{ in, out [tile]byte }

// length returns the bytes of a segment on the wire.
func (o *op) length(n int64) int64 { return o.coded.coding.Bytes(o.coded.typ, n) }

// imageOf returns the coded form of [lo, hi). Where blocks have borders of any kind each of them begins lines of its
// own, which need more room, but never more than two bytes for an element.
func (o *op) imageOf(lo, hi int64) []byte {
	at := o.length(lo)
	if o.kind != Allreduce {
		at = lo / int64(o.coded.typ.Size()) * 2
	}
	end := at + o.length(hi-lo)
	return o.coded.image[at:end:end]
}

// setCoding prepares an op whose algorithm is known.
func (o *op) setCoding(by schedule.Algorithm) {
	c := &o.coded
	room := o.size / int64(c.typ.Size()) * 2
	if by == schedule.ByDirect {
		room = 0 // parts are in slots
	}
	c.image = resize(c.image, int(room))
	c.mirrored, c.shared = by == schedule.ByRecursiveDoubling, o.kind == Allreduce
	c.keeps = false
	for i := range o.steps {
		c.keeps = c.keeps || o.steps[i].Do.Merges()
	}
}

// makeCoded computes the host's own part of [lo, hi), as it is sent.
func (o *op) makeCoded(dst []byte, lo, hi int64) {
	c := &o.coded
	if len(o.ins) == 1 && o.mid.Pre == 1 && !c.mirrored {
		c.coding.Encode(c.typ, dst, o.ins[0][lo:hi])
		return
	}
	o.byTile(lo, hi, dst, func(a, b int64, wire []byte, t *tiles, v *view) {
		out := t.out[:b-a]
		v.dst, v.src = append(v.dst, out), cut(v.src, o.ins, a, b)
		o.mid.Reduce(v.dst, nil, v.src)
		c.coding.Encode(c.typ, wire, out)
		if c.mirrored {
			c.coding.Decode(c.typ, o.acc[a:b], wire)
		}
	})
}

// takeCoded is take of an op that is coded.
func (o *op) takeCoded(step int, lo, hi int64, payload []byte) {
	s, c := &o.steps[step], &o.coded
	if s.Do == schedule.Collect {
		settleIn(o.part(s.Peer, lo, hi), payload)
		o.collected(lo, hi)
		return
	}
	var image []byte
	final := s.Do == schedule.Finish || s.Do == schedule.Conclude
	if !final || c.shared {
		image = o.imageOf(lo, hi)
	}
	if s.Do == schedule.Take {
		settleIn(image, payload)
		o.byTile(lo, hi, image, func(a, b int64, wire []byte, _ *tiles, _ *view) { o.settleCoded(a, b, wire) })
		return
	}
	o.byTile(lo, hi, payload, func(a, b int64, wire []byte, t *tiles, v *view) {
		in, out := t.in[:b-a], t.out[:b-a]
		c.coding.Decode(c.typ, in, wire)
		plan, partial := o.mid, in
		v.src = cut(v.src, o.ins, a, b)
		if s.Do.Merges() {
			plan, partial = o.join, o.acc[a:b]
			v.src = append(v.src[:0], in)
		}
		switch {
		case final && s.Do.Merges():
			plan = o.combine
		case final:
			plan = o.last
		}
		if final && !c.shared { // it goes nowhere from here
			v.dst = append(v.dst, o.acc[a:b])
			plan.Reduce(v.dst, partial, v.src)
			return
		}
		if !final && c.keeps && !c.mirrored {
			out = o.acc[a:b]
		}
		v.dst = append(v.dst, out)
		plan.Reduce(v.dst, partial, v.src)
		again := image[o.length(a-lo):][:len(wire)]
		c.coding.Encode(c.typ, again, out)
		switch {
		case final:
			o.settleCoded(a, b, again)
		case c.mirrored:
			c.coding.Decode(c.typ, o.acc[a:b], again)
		}
	})
}

// settleCoded gives the ranks of this host a piece of the result.
func (o *op) settleCoded(a, b int64, wire []byte) {
	o.coded.coding.Decode(o.coded.typ, o.acc[a:b], wire)
	o.copyOut(a, b)
}

// collectCoded adds the parts of all positions, in their order.
func (o *op) collectCoded(lo, hi int64) {
	c := &o.coded
	o.byTile(lo, hi, o.part(0, lo, hi), func(a, b int64, first []byte, t *tiles, v *view) {
		in, sum := t.in[:b-a], t.out[:b-a]
		c.coding.Decode(c.typ, sum, first)
		for pos := 1; pos < len(o.group.hosts); pos++ {
			c.coding.Decode(c.typ, in, o.part(pos, lo, hi)[o.length(a-lo):][:len(first)])
			v.dst, v.src = append(v.dst[:0], sum), append(v.src[:0], in)
			plan := o.join
			if pos == len(o.group.hosts)-1 {
				plan, v.dst = o.combine, cut(v.dst[:0], o.outs, a, b)
			}
			plan.Reduce(v.dst, sum, v.src)
		}
	})
}

// byTile calls f for the tiles of [lo, hi), each with its bytes of wire, scratch memory and an empty view.
func (o *op) byTile(lo, hi int64, wire []byte, f func(a, b int64, wire []byte, t *tiles, v *view)) {
	t := o.engine.tiles.Get().(*tiles)
	v := o.engine.view()
	for a := lo; a < hi; a += tile {
		b := min(a+tile, hi)
		n := o.length(b - a)
		f(a, b, wire[:n:n], t, v)
		wire = wire[n:]
		v.dst, v.src = v.dst[:0], v.src[:0]
	}
	o.engine.views.Put(v)
	o.engine.tiles.Put(t)
}

// codedPlan is plan of an op that may be coded.
func (o *op) codedPlan(r *Request) kernel.Plan {
	ranks := len(o.group.ranks)
	p := r.plan(ranks)
	if early := r.Pre / float64(ranks); o.coded.on() && r.Op == kernel.Average && early != 0 {
		p.Pre, p.Post = early, r.Post
	}
	return p
}
