package collective

import "gorun/collective/schedule"

// scatter reduces and gives every rank its rows of the result, in the order of ranks; the first ones get one more
// if they cannot get the same. A reduce gives all rows to one rank.
//
// The result memory is as large as the tensor, and the partials of the other hosts' rows pass through it: each byte
// of it is written once, so that nothing waits for a peer to have a partial, and the memory goes when the link holds
// nothing of it.
type scatter struct {
	partials
	rows rowBlocks
}

var scatters = newStrategies[scatter](always)

func (s *scatter) layout(o *op, r *Request) {
	s.o, s.plans, s.asIs = o, rowPlansOf(o, r), false
	s.rows.layout(o, r)
}

func (s *scatter) local(lo, hi int64) {
	s.o.contribute(&s.last, s.o.acc[lo:hi], lo, hi)
}

// rowPlansOf returns the arithmetic of a scatter: a partial is sent on, or becomes the result.
func rowPlansOf(o *op, r *Request) (p plans) {
	p.last = planOf(o, r)
	p.mid = p.last
	p.mid.Post = 1
	return p
}

// rowBlocks are the bytes of a tensor by the host that gets them.
type rowBlocks struct{ blocks []schedule.Block }

// layout lays out results and steps. It returns false if there is no memory.
func (b *rowBlocks) layout(o *op, r *Request) bool {
	if !o.provide(o.size) {
		return false
	}
	if r.Kind == Reduce {
		b.toRoot(o, r)
	} else {
		b.deal(o, r)
	}
	o.run.steps = schedule.Scatter(o.run.steps, len(o.group.hosts), o.group.self, b.blocks)
	return true
}

// toRoot gives one rank everything. Other hosts have memory for the partials that pass through them.
func (b *rowBlocks) toRoot(o *op, r *Request) {
	root, _ := o.group.find(r.Root)
	if root.pos == o.group.self {
		o.results.list[root.index] = Result{Hi: int(o.size), Shape: r.Shape}
	}
	b.blocks = append(b.blocks[:0], schedule.Block{Owner: root.pos, Hi: o.size})
}

// deal gives every rank its rows.
func (b *rowBlocks) deal(o *op, r *Request) {
	g := o.group
	row, _ := BytesOf(r.Shape[1:], r.Type)
	each, more := r.Shape[0]/len(g.ranks), r.Shape[0]%len(g.ranks)
	b.blocks = b.blocks[:0]
	at := 0
	for i, seat := range g.seats {
		rows := each
		if i < more {
			rows++
		}
		end := at + rows*row
		if n := len(b.blocks); n > 0 && b.blocks[n-1].Owner == seat.pos {
			b.blocks[n-1].Hi = int64(end) // one block for neighbours on one host
		} else {
			b.blocks = append(b.blocks, schedule.Block{Owner: seat.pos, Lo: int64(at), Hi: int64(end)})
		}
		if seat.pos == g.self {
			o.results.list[seat.index] = Result{Lo: at, Hi: end, Shape: o.results.shape(seat.index, r.Shape, rows)}
		}
		at = end
	}
}
