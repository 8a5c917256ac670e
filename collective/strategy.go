package collective

import (
	"sync"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// newStrategies returns the pool of a type of strategy.
func newStrategies[S any, P interface {
	*S
	strategy
}](fits func(o *op, r *Request) bool) *strategyPool {
	return &strategyPool{fits: fits, free: sync.Pool{New: func() any { return P(new(S)) }}}
}

// always fits every operation of the kinds that a strategy is listed for.
func always(*op, *Request) bool { return true }

// base is what most strategies have in common: they send and receive in acc, and pass on by the schedule.
type base struct{ o *op }

func (b *base) payload(_ int, lo, hi int64) []byte { return b.o.acc[lo:hi] }

func (b *base) make(int, int64, int64) {}

func (b *base) target(_ int, lo, hi int64) []byte { return b.o.acc[lo:hi:hi] }

func (b *base) deliver(_ int, lo, hi int64, payload []byte) {
	place(b.o.acc[lo:hi], payload)
	b.o.copyOut(lo, hi)
}

func (b *base) follow(step int, lo int64) { b.o.passOn(step, lo) }

func (b *base) local(int64, int64) {}

// contribute reduces the bytes [lo, hi) of the inputs of this host to dst.
func (o *op) contribute(p *kernel.Plan, dst []byte, lo, hi int64) {
	v := o.engine.view()
	v.dst, v.src = append(v.dst, dst), cut(v.src, o.ins, lo, hi)
	p.Reduce(v.dst, nil, v.src)
	o.engine.views.Put(v)
}

// everyRank calls f for each rank of an agreed op, with what it said of its rows (Request.rows).
func (o *op) everyRank(f func(rank, rows int)) {
	for pos, h := range o.group.hosts {
		if pos == o.group.self {
			for i, rank := range h.Ranks {
				f(rank, o.own.reqs[i].rows())
			}
			continue
		}
		v := o.ranks(pos)
		for i := range v.count() {
			f(v.rank(i))
		}
	}
}

// takes reports whether a step receives a finished piece of the result.
func (o *op) takes(step int) bool { return o.run.steps[step].Do == schedule.Take }
