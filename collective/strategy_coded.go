package collective

import (
	"sync"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// Sums of float32 and float64 may travel in fewer bytes than they have (kernel.Coding), if the job or the request
// asks for it. Between the ranks of a host nothing travels, and nothing is lost.
//
// The steps of an algorithm stay as they are. Beside acc there is its coded image: whatever a step sends is made
// there, and a received result is read to there. Partials are decoded, added up and coded again by tiles that stay in
// the cache. A result is coded once, by the host that finishes it: it takes the decoded form itself, and all others
// pass the same bytes on. So all ranks have the same bits.
//
// In recursive doubling both ends of an exchange add the same two partials: there the sender goes on with what the
// other one decodes (mirrored).
//
// The rest is as if a sum of H hosts was rounded H times: it is off by at most H times what a coding does to the sum
// of the inputs' sizes. An average is divided before it travels, so that it cannot overflow where its inputs do not.
//
// What is so small that it goes with the ready messages (strategy_inline.go) is not coded.

// coded adds up coded partials by the schedule of any algorithm but the direct one.
type coded struct {
	base
	plans
	image    []byte // of acc
	mirrored bool
	keeps    bool // partials are needed in acc too
	shared   bool // what Finish makes is sent on
}

// codedSum is an allreduce.
type codedSum struct{ coded }

var codedSums = newStrategies[codedSum](isCoded)

func (s *codedSum) layout(o *op, r *Request) {
	s.o, s.plans, s.shared = o, plansOf(o, r), true
	o.acc = o.outs[0]
	o.copies = append(o.copies, o.outs[1:]...)
	if s.mirrored = o.by == schedule.ByRecursiveDoubling; s.mirrored {
		o.run.cut = doublingCut(o.run.cut)
	}
	o.route()
	s.prepare()
}

// codedScatter is a reduce-scatter or a reduce.
type codedScatter struct {
	coded
	rows rowBlocks
}

var codedScatters = newStrategies[codedScatter](isCoded)

func (s *codedScatter) layout(o *op, r *Request) {
	s.o, s.plans, s.shared, s.mirrored = o, rowPlansOf(o, r), false, false
	if s.rows.layout(o, r) {
		s.prepare()
	}
}

// prepare makes room for the image. The steps are known.
func (s *coded) prepare() {
	run := &s.o.run
	s.image = resize(s.image, int(s.o.size/int64(run.typ.Size())*2))
	s.keeps = false
	for i := range run.steps {
		s.keeps = s.keeps || run.steps[i].Do.Merges()
	}
}

// imageOf returns the coded form of [lo, hi). Where blocks have borders of any kind each of them begins lines of its
// own, which need more room, but never more than two bytes for an element.
func (s *coded) imageOf(lo, hi int64) []byte {
	run := &s.o.run
	at := run.length(lo)
	if !s.shared {
		at = lo / int64(run.typ.Size()) * 2
	}
	end := at + run.length(hi-lo)
	return s.image[at:end:end]
}

func (s *coded) payload(_ int, lo, hi int64) []byte { return s.imageOf(lo, hi) }

func (s *coded) target(step int, lo, hi int64) []byte {
	if s.o.takes(step) {
		return s.imageOf(lo, hi)
	}
	return nil
}

func (s *coded) make(_ int, lo, hi int64) { s.o.encode(&s.mid, s.imageOf(lo, hi), lo, hi, s.mirrored) }

// encode computes the host's own contribution to [lo, hi), as it is sent. If it is mirrored, acc gets what the others
// decode.
func (o *op) encode(mid *kernel.Plan, dst []byte, lo, hi int64, mirrored bool) {
	run := &o.run
	if len(o.ins) == 1 && mid.Pre == 1 && !mirrored {
		run.coding.Encode(run.typ, dst, o.ins[0][lo:hi])
		return
	}
	o.byTile(lo, hi, dst, func(a, b int64, wire []byte, t *tiles, v *view) {
		out := t.out[:b-a]
		v.dst, v.src = append(v.dst, out), cut(v.src, o.ins, a, b)
		mid.Reduce(v.dst, nil, v.src)
		run.coding.Encode(run.typ, wire, out)
		if mirrored {
			run.coding.Decode(run.typ, o.acc[a:b], wire)
		}
	})
}

func (s *coded) deliver(step int, lo, hi int64, payload []byte) {
	o, run := s.o, &s.o.run
	do := run.steps[step].Do
	var image []byte
	final := do == schedule.Finish || do == schedule.Conclude
	if !final || s.shared {
		image = s.imageOf(lo, hi)
	}
	if do == schedule.Take {
		place(image, payload)
		o.byTile(lo, hi, image, func(a, b int64, wire []byte, _ *tiles, _ *view) { s.decode(a, b, wire) })
		return
	}
	o.byTile(lo, hi, payload, func(a, b int64, wire []byte, t *tiles, v *view) {
		in, out := t.in[:b-a], t.out[:b-a]
		run.coding.Decode(run.typ, in, wire)
		plan, partial := s.mid, in
		v.src = cut(v.src, o.ins, a, b)
		if do.Merges() {
			plan, partial = s.join, o.acc[a:b]
			v.src = append(v.src[:0], in)
		}
		switch {
		case final && do.Merges():
			plan = s.combine
		case final:
			plan = s.last
		}
		if final && !s.shared { // it goes nowhere from here
			v.dst = append(v.dst, o.acc[a:b])
			plan.Reduce(v.dst, partial, v.src)
			return
		}
		if !final && s.keeps && !s.mirrored {
			out = o.acc[a:b]
		}
		v.dst = append(v.dst, out)
		plan.Reduce(v.dst, partial, v.src)
		again := image[run.length(a-lo):][:len(wire)]
		run.coding.Encode(run.typ, again, out)
		switch {
		case final:
			s.decode(a, b, again)
		case s.mirrored:
			run.coding.Decode(run.typ, o.acc[a:b], again)
		}
	})
}

// decode gives the ranks of this host a piece of the result.
func (s *coded) decode(a, b int64, wire []byte) {
	o := s.o
	o.run.coding.Decode(o.run.typ, o.acc[a:b], wire)
	o.copyOut(a, b)
}

// codedDirect is an allreduce in which every host sends its coded contribution to every other one.
type codedDirect struct{ everywhere }

var codedDirects = newStrategies[codedDirect](func(o *op, r *Request) bool {
	return isCoded(o, r) && o.by == schedule.ByDirect
})

func (s *codedDirect) make(_ int, lo, hi int64) {
	s.o.encode(&s.mid, s.slots.of(s.o, s.o.group.self, lo, hi), lo, hi, false)
	s.count(lo, hi)
}

func (s *codedDirect) deliver(step int, lo, hi int64, payload []byte) {
	place(s.target(step, lo, hi), payload)
	s.count(lo, hi)
}

// count adds the contributions of all positions, in their order, once the last one to [lo, hi) is there.
func (s *codedDirect) count(lo, hi int64) {
	o, run := s.o, &s.o.run
	if !s.slots.last(o, lo) {
		return
	}
	hosts := len(o.group.hosts)
	o.byTile(lo, hi, s.slots.of(o, 0, lo, hi), func(a, b int64, first []byte, t *tiles, v *view) {
		in, sum := t.in[:b-a], t.out[:b-a]
		run.coding.Decode(run.typ, sum, first)
		for pos := 1; pos < hosts; pos++ {
			run.coding.Decode(run.typ, in, s.slots.of(o, pos, lo, hi)[run.length(a-lo):][:len(first)])
			v.dst, v.src = append(v.dst[:0], sum), append(v.src[:0], in)
			plan := s.join
			if pos == hosts-1 {
				plan, v.dst = s.combine, cut(v.dst[:0], o.outs, a, b)
			}
			plan.Reduce(v.dst, sum, v.src)
		}
	})
}

// tile is the bytes of a tensor that are decoded, added and coded at once.
const tile = 16 << 10

type tiles struct{ in, out [tile]byte }

var freeTiles = sync.Pool{New: func() any { return new(tiles) }}

// byTile calls f for the tiles of [lo, hi), each with its bytes of wire, scratch memory and an empty view.
func (o *op) byTile(lo, hi int64, wire []byte, f func(a, b int64, wire []byte, t *tiles, v *view)) {
	t := freeTiles.Get().(*tiles)
	v := o.engine.view()
	for a := lo; a < hi; a += tile {
		b := min(a+tile, hi)
		n := o.run.length(b - a)
		f(a, b, wire[:n:n], t, v)
		wire = wire[n:]
		v.dst, v.src = v.dst[:0], v.src[:0]
	}
	o.engine.views.Put(v)
	freeTiles.Put(t)
}
