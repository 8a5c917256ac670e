package collective

import (
	"sync"
	"time"

	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

// op is one use of a name, from the first contribution or ready message to the last acknowledgement. Its life: ranks
// submit, hosts declare and decide (negotiation.go), then start lays it out and sends, segments come and go
// (segment.go), and advance completes it. What is done to the bytes is its strategy's business. Ops are pooled with
// everything they hold, so that a job that repeats itself allocates nothing.
type op struct {
	engine *Engine
	group  *group
	epoch  uint32
	id     uint64
	name   string

	// Negotiation: guarded by Engine.mu, and constant once the op started.
	own    contributions
	cost   schedule.Cost // of the world
	inline bool          // an allreduce whose contributions came with the ready messages
	direct bool          // one whose contributions could have, and are exchanged in the same order
	lasts  int           // place in operations.lasting
	gen    uint32        // which use of the name it is
	ballot
	since time.Time // when Pending first saw it
	began time.Time // when all hosts had declared that their ranks were ready

	// Layout: written before started is set, constant until the op is recycled.
	strategy strategy
	pool     *strategyPool      // where it came from
	by       schedule.Algorithm // of an allreduce between hosts
	size     int64              // of the op's buffer
	mixed    bool               // the strategy has something to do on this host besides its steps
	late     bool               // there is no memory for what passes through now, but there will be
	buffer   Buffer             // of the kinds that bring their own result memory
	results  results
	other    Request // what ranks of another host submitted, if all of this one joined
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

// start begins an op that all hosts agreed on.
func (o *op) start() {
	o.began = time.Now()
	if len(o.group.hosts) == 1 {
		o.layout()
		o.startLocal()
		return
	}
	for o.layout(); o.late; o.layout() {
		if o.engine.spills.wait(o.start) {
			return
		}
	}
	o.mu.Lock()
	if o.dead { // aborted since the verdict
		o.mu.Unlock()
		if o.buffer != nil {
			o.buffer.Release()
		}
		return
	}
	o.started = true
	stash := o.stash.segments
	o.mu.Unlock()
	for i := range o.run.steps {
		if o.run.steps[i].Do == schedule.Contribute {
			o.queueAll(i)
		}
	}
	if o.mixed && o.enter() {
		o.strategy.local(0, o.size)
		o.leave()
	}
	for _, s := range stash {
		o.deliver(s.peer, s.header, *s.payload)
		o.engine.buffers.Put(s.payload)
	}
	o.mu.Lock()
	o.stash.release(&o.engine.stashed)
	o.remaining--
	o.advance()
}

// alone reports whether an op is being carried out on this host alone.
func (o *op) alone() bool { return len(o.group.hosts) == 1 && o.declared(0) }

// layout lays an agreed op out: memory, steps and counters.
func (o *op) layout() {
	r := o.lead()
	size, _ := bytesOf(r.Shape, r.Type)
	o.size, o.err, o.late, o.mixed = int64(size), nil, false, false
	o.results.reset(len(o.own.reqs))
	o.take(&o.own)
	if o.own.lacking() && r.Kind == Allreduce {
		o.fill(o.size)
	}
	run := &o.run
	run.steps, run.cut = run.steps[:0], o.engine.segment
	run.coding, run.typ = kernel.CodingNone, r.Type
	if len(o.group.hosts) > 1 && o.size > 0 && !o.inline {
		run.coding = max(r.Coding, kernel.CodingNone)
	}
	if o.by = schedule.Auto; r.Kind == Allreduce {
		o.by = o.algorithm()
	}
	o.engine.strategies.choose(o, r)
	o.strategy.layout(o, r)
	o.remaining = run.begin(len(o.group.hosts)) + 1
	if o.mixed {
		o.remaining++
	}
}

// lead returns a contribution, of another host if no rank of this one submitted any; it is good until the next call.
func (o *op) lead() *Request {
	if i := o.own.first(); i >= 0 {
		return &o.own.reqs[i]
	}
	if o.agreed(&o.other) {
		return &o.other
	}
	return &o.own.reqs[0]
}

// enter begins work of an op that was counted in remaining; false if the op was aborted.
func (o *op) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return false
	}
	o.busy++
	return true
}

// leave ends what enter began.
func (o *op) leave() {
	o.mu.Lock()
	o.busy--
	o.remaining--
	o.advance()
}

// advance acts on what changed: it notifies the ranks once the result is there, the holder once the
// peers have its memory, and recycles the op once the link holds nothing of it. The caller
// changed a counter, holds o.mu and does nothing afterwards: advance releases the lock.
func (o *op) advance() {
	for {
		switch {
		case o.stage == open && (o.remaining == 0 || o.dead && o.busy == 0):
			o.stage = completing
			o.mu.Unlock()
			if b, ok := o.buffer.(*spill); ok {
				b.ended()
			}
			// The name must be free before a rank hears of the end and uses it again.
			o.engine.remove(o)
			o.completeAll(false)
			o.mu.Lock()
			o.stage = completed
		case o.stage == completed && (o.unacked == 0 || o.dead):
			o.stage = freeing
			o.mu.Unlock()
			o.completeAll(true)
			o.mu.Lock()
			o.stage = freed
		case o.stage == freed && (o.inflight == 0 || o.dead):
			o.stage = pooled
			dead := o.dead
			o.mu.Unlock()
			if o.buffer != nil {
				o.buffer.Release()
			}
			// The link may still refer to an aborted op.
			if !dead {
				if len(o.group.hosts) > 1 {
					o.engine.finished(o)
				}
				o.engine.recycle(o)
			}
			return
		default:
			o.mu.Unlock()
			return
		}
	}
}

// completeAll ends the requests of all ranks whose memory is sent from, or of all others.
func (o *op) completeAll(holders bool) {
	for i := range o.own.reqs {
		if o.holds(i) == holders {
			o.complete(i)
		}
	}
}

// complete ends a local rank's request.
func (o *op) complete(index int) {
	if !o.own.have[index] {
		return // it joined
	}
	r := &o.own.reqs[index]
	res := o.results.list[index]
	switch {
	case o.err != nil:
		res = Result{Err: o.err}
	case o.buffer != nil:
		o.buffer.Retain()
		res.Buffer = o.buffer
	}
	res.Took = time.Since(o.began)
	r.Client.Complete(r.Handle, res)
}

// fail ends an op that did not start. It is not pooled again: a late segment may still look at it.
func (o *op) fail(err *Error) {
	o.mu.Lock()
	o.dead = true
	o.stash.release(&o.engine.stashed)
	o.mu.Unlock()
	o.own.fail(err)
}

// abort ends an op in whatever state it is. Kernels at work finish first.
func (o *op) abort(err *Error) {
	for _, w := range o.waiting {
		w.req.Client.Complete(w.req.Handle, Result{Err: err})
	}
	o.mu.Lock()
	o.dead = true
	if !o.started {
		o.mu.Unlock()
		o.fail(err)
		return
	}
	if o.stage == open {
		o.err = err // later ones have their result
	}
	o.advance()
}

// recycle takes back an op that the link holds nothing of.
func (p *pools) recycle(o *op) {
	o.forget()
	p.free.Put(o)
}

// announced returns what the op is as far as is known.
func (o *op) announced() Kind {
	for i := range o.own.reqs {
		if o.own.have[i] {
			return o.own.reqs[i].Kind
		}
	}
	return o.kind()
}
