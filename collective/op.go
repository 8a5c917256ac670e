package collective

import (
	"sync"
	"time"

	"gorun/collective/flight"
	"gorun/collective/schedule"
)

// op carries out one use of a name, from the first contribution or ready message to the last acknowledgement. Its life:
// ranks submit, hosts declare and decide (readiness.go), then start lays it out and sends (start.go), segments come
// and go (segment.go), and advance completes it (life.go). What is done to the bytes is its strategy's business. Ops
// are pooled with everything they hold, so that a job that repeats itself allocates nothing.
type op struct {
	engine *Engine
	use    // constant once the op started

	// Layout: written before started is set, constant until the op is recycled.
	strategy strategy
	pool     *strategyPool      // where it came from
	by       schedule.Algorithm // of an allreduce between hosts
	size     int64              // of the op's buffer
	mixed    bool               // the strategy has something to do on this host besides its steps
	buffer   Buffer             // of the kinds that bring their own result memory
	results  results
	tensors

	mu        sync.Mutex
	stash     stash
	run       run
	started   bool
	dead      bool // aborted
	remaining int  // segments to make or to receive, slices to reduce, and one until all is queued
	unacked   int  // segments in the holder's memory that a peer may not have
	inflight  int  // segments the link holds
	busy      int  // kernels at work
	err       *Error
	stage     stage

	slices slicing // guarded by workers.mu
}

// use is one use of a name: what the ranks of this host have submitted under it, and what all hosts have declared.
// Engine.mu guards it.
type use struct {
	group *group
	epoch uint32
	id    uint64
	name  string

	note   flight.Operation
	own    contributions
	other  Request       // what ranks of another host submitted, if all of this one joined
	cost   schedule.Cost // of the world
	inline bool          // an allreduce whose contributions came with the ready messages
	direct bool          // an allreduce that could have been inline: contributions are exchanged in the same order
	lasts  int           // place in operations.lasting
	gen    uint32        // which use of the name it is
	ballot
	since time.Time // when Pending first saw it
	began time.Time // when all hosts had declared that their ranks were ready
}

// A strategy carries out one operation. It knows where the bytes are that a step sends or receives, and what
// happens to them; the op knows when. One strategy lives in one file, strategy_*.go, embeds base (strategy.go) and is
// entered in the registry (registry.go). An algorithm of its own also has a line in package schedule.
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

// registry lists strategies by kind of operation.
type registry [len(kinds)][]*strategyPool

// choose gives an op its strategy. It keeps the one of its last use if it can.
func (reg *registry) choose(o *op, r *Request) {
	for _, p := range reg[r.Kind] {
		if !p.fits(o, r) {
			continue
		}
		if o.pool != p {
			if o.pool != nil {
				o.pool.free.Put(o.strategy)
			}
			o.pool, o.strategy = p, p.free.Get().(strategy)
		}
		return
	}
	panic("collective: no strategy for " + r.Kind.String())
}

// stage is how far the end of an op has come.
type stage uint8

const (
	open       stage = iota
	completing       // ranks are being notified
	completed        // all but the holder have been
	freeing          // the holder is being notified
	freed            // all ranks have been, the link may still hold segments
	pooled
)

// reset makes a pooled op an empty one for a name.
func (o *op) reset(g *group, epoch uint32, id uint64, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.group, o.epoch, o.id, o.name = g, epoch, id, name
	o.own.reset(len(g.local()))
	o.ballot.reset(len(g.hosts))
	o.gen, o.since, o.inline, o.direct = 0, time.Time{}, false, false
	o.started, o.dead, o.err = false, false, nil
	o.stage = open
	o.remaining, o.unacked, o.inflight, o.busy = 0, 0, 0, 0
	o.stash.reset()
	o.run.early = o.run.early[:0]
}

// forget drops what would keep the memory of a finished op's ranks alive.
func (o *op) forget() {
	clear(o.own.reqs)
	clear(o.results.list)
	clear(o.waiting)
	o.waiting = o.waiting[:0]
	o.tensors.forget()
	o.buffer, o.group = nil, nil
}

// alone reports whether an op is being carried out on this host alone.
func (u *use) alone() bool { return len(u.group.hosts) == 1 && u.declared(0) }

// lead returns a contribution, of another host if no rank of this one submitted any; it is good until the next call.
func (u *use) lead() *Request {
	if i := u.own.first(); i >= 0 {
		return &u.own.reqs[i]
	}
	if u.agreed(&u.other) {
		return &u.other
	}
	return &u.own.reqs[0]
}

// announced returns what the op is as far as is known.
func (u *use) announced() Kind {
	if i := u.own.first(); i >= 0 {
		return u.own.reqs[i].Kind
	}
	return u.kind()
}
