package collective

import (
	"sync"

	"gorun/collective/schedule"
)

// A strategy carries out one operation. It knows where the bytes are that a step sends or receives, and what
// happens to them; the op knows when. One strategy lives in one file, strategy_*.go, and is entered in the registry
// (registry.go). An algorithm of its own also has a line in package schedule.
//
// A strategy belongs to one op at a time and is used again for others, so that its memory serves many. Its methods
// are called without op.mu, except target; calls for different segments may come at the same time.
type strategy interface {
	// layout sets the operation out: its memory, results and steps. r is a contribution to it. A strategy that gets
	// no memory for the result (op.provide) leaves the operation without steps.
	layout(o *op, r *Request)
	// payload returns where the bytes [lo, hi) lie that a step sends.
	payload(step int, lo, hi int64) []byte
	// make computes the payload of a Contribute step, right before it is sent.
	make(step int, lo, hi int64)
	// target returns where a payload that arrives may be read to, nil if deliver only looks at it.
	target(step int, lo, hi int64) []byte
	// deliver takes a payload that arrived. It may lie in its target already.
	deliver(step int, lo, hi int64, payload []byte)
	// follow acts once a segment was made or delivered: it queues what waited for it.
	follow(step int, lo int64)
	// local does what ranks of this host do among themselves, for the bytes [lo, hi) of the result. On one host
	// alone that is everything; between hosts it is called once for all bytes, if the layout set op.mixed.
	local(lo, hi int64)
}

// strategyPool makes strategies of one type and keeps the free ones.
type strategyPool struct {
	fits func(o *op, r *Request) bool // whether they can carry out an op; r is a contribution to it
	free sync.Pool
}

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

// takes reports whether a step receives a finished piece of the result.
func (o *op) takes(step int) bool { return o.run.steps[step].Do == schedule.Take }
