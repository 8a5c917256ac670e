package collective

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// Engine runs the operations of one host's ranks. Its methods may be called from any goroutine.
type Engine struct {
	cfg Config
	pools
	strategies *registry
	workers    workers
	stashed    atomic.Int64  // bytes, for operations of unknown size
	spilled    atomic.Int64  // bytes of results that only pass through here
	recorder   *recorder     // nil if nothing is recorded
	ended      atomic.Uint32 // the epoch whose world is broken
	epoch      atomic.Uint32 // written with mu held

	mu          sync.Mutex
	groups      *directory
	ops         operations
	negotiation *readiness
	paused      paused
	world       EngineWorld
	cost        schedule.Cost    // of the world
	channels    map[int]*channel // control messages, by peer
	stopped     *Error           // why nothing can be submitted
	past        *Error           // why the worlds before this one ended
}

// paused is the state of a pause.
type paused struct {
	number  uint32 // of the pause, 0 if there is none
	quiet   func() // to be called, once
	leaving []int  // local ranks that left meanwhile: what they submitted before is not declared yet
}

// New returns an engine that refuses everything until SetWorld.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg:        cfg.withDefaults(),
		strategies: &strategies,
		stopped:    refuse("there is no world yet"),
		past:       &Error{Code: CodeAborted, Text: "the world of this rank has ended"},
	}
	e.workers.init(runtime.GOMAXPROCS(0))
	e.pools.init(e)
	if cfg.Record {
		e.recorder = newRecorder()
	}
	return e
}

// refusal returns why nothing can be submitted for the epoch of a request. mu is held.
func (e *Engine) refusal(r *Request) *Error {
	switch {
	case e.stopped != nil:
		return e.stopped
	case r.Epoch != 0 && r.Epoch != e.world.Epoch:
		return e.past
	}
	return nil
}

// Run owns the workers. It returns when ctx ends or Close is called, after all of them did.
func (e *Engine) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, e.workers.stop)
	defer stop()
	e.workers.run()
	return nil
}

// Describe returns, in words, how allreduces between all hosts of the world are done.
func (e *Engine) Describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	how := e.cost.Describe(len(e.world.Hosts), e.cfg.Direct)
	if e.cfg.Algorithm != schedule.Auto {
		how = "allreduce by " + e.cfg.Algorithm.String()
	}
	if e.cfg.Coding > kernel.CodingNone {
		how += "; sums of float32 and float64 travel as " + e.cfg.Coding.String()
	}
	return how
}

// codingOf returns how the elements of a request travel between hosts, CodingDefault if as they are. It must be the
// same for all ranks, however they came to it.
func (e *Engine) codingOf(r *Request) kernel.Coding {
	c := r.Coding
	if c == kernel.CodingDefault {
		c = e.cfg.Coding
	}
	if !r.Kind.reduces() || r.Op != kernel.Sum && r.Op != kernel.Average || !c.Codes(r.Type) {
		return kernel.CodingDefault
	}
	return c
}

// fresh returns an empty op. mu is held.
func (e *Engine) fresh(g *group, id uint64, name string) *op {
	o := e.free.Get().(*op)
	o.reset(g, e.world.Epoch, id, name)
	o.cost = e.cost
	return o
}

// remove frees an op's name for its next use.
func (e *Engine) remove(o *op) {
	e.mu.Lock()
	e.recorder.tick()
	e.recorder.ended(o, o.err != nil)
	if e.ops.open[o.id] == o && len(o.group.hosts) > 1 {
		e.ops.keep(o)
	}
	e.negotiation.finish(o)
	e.settle()
}

// init makes empty pools for the operations of an engine.
func (p *pools) init(e *Engine) {
	p.free.New = func() any { return &op{engine: e} }
	p.views.New = func() any { return new(view) }
	p.buffers.New = func() any { return new([]byte) }
	p.messages.New = func() any { return &message{pools: p} }
	p.pieces.New = func() any {
		p := new(piece)
		p.Owner = p
		return p
	}
}

// announce reports a message to all hosts that is about no operation. mu is held.
func (e *Engine) announce(message []byte) {
	e.ops.report(event{send: message, to: e.world.Hosts})
}

// settle unlocks mu, and carries out what the caller and the negotiation have reported.
func (e *Engine) settle() {
	var room [2]event
	all := e.drain(room[:0])
	quiet := e.quiet()
	e.mu.Unlock()
	e.follow(all)
	if quiet != nil {
		quiet()
	}
}

// drain appends the events to all, with the messages to be sent. mu is held.
func (e *Engine) drain(all []event) []event {
	first := len(all)
	all = append(all, e.ops.events...)
	clear(e.ops.events)
	e.ops.events = e.ops.events[:0]
	for i := first; i < len(all); i++ {
		switch v := &all[i]; {
		case v.send != nil:
			e.compose(v)
		case v.start && len(v.op.group.hosts) > 1:
			e.ops.live++
		}
	}
	return all
}

// follow carries out what drain returned. No lock is held.
func (e *Engine) follow(all []event) {
	for _, v := range all {
		switch {
		case v.message != nil:
			// Messages may be posted in another order than they were composed. The last Send may give this one away.
			peers, segments := v.message.peers, v.message.segments
			for i, peer := range peers {
				e.cfg.Transport.Send(peer, &segments[i])
			}
		case v.start:
			v.op.start()
		case v.err != nil:
			v.op.fail(v.err)
		}
	}
}

// compose copies the control message of an event and gives it its place in the order of messages to each of the hosts,
// without this one. mu is held.
func (e *Engine) compose(v *event) {
	m := e.messages.Get().(*message)
	m.payload = append(m.payload[:0], v.send...)
	m.peers, m.segments = m.peers[:0], resize(m.segments, len(v.to))
	for _, h := range v.to {
		c := e.channels[h.ID]
		if c == nil {
			continue
		}
		s := &m.segments[len(m.peers)]
		s.Header = link.Header{Kind: link.Control, Epoch: e.world.Epoch, Length: uint32(len(m.payload)), Offset: c.sent}
		if v.op != nil {
			s.Header.Op = v.op.id
		}
		s.Payload, s.Owner = m.payload, m
		c.sent++
		m.peers = append(m.peers, h.ID)
	}
	m.left.Store(int32(len(m.peers)))
	if v.send = nil; len(m.peers) == 0 {
		e.messages.Put(m)
		return
	}
	v.message = m
}

// breaks reports that the world cannot go on because of a peer.
func (e *Engine) breaks(peer int, err error) {
	if now := e.epoch.Load(); e.ended.Swap(now) != now {
		e.cfg.Broken(peer, err)
	}
}

// quiet returns what to call if a pause has come to the point where nothing is under way any more, or nil. mu is held.
func (e *Engine) quiet() func() {
	g := &e.paused
	if g.number == 0 || g.quiet == nil || e.ops.live > 0 || e.stopped != nil {
		return nil
	}
	for _, c := range e.channels {
		if c.stopped != g.number {
			return nil
		}
	}
	notify := g.quiet
	g.quiet = nil
	return notify
}

// finished counts down an operation between hosts once the link holds nothing of it.
func (e *Engine) finished(o *op) {
	e.mu.Lock()
	if e.world.Epoch == o.epoch && e.stopped == nil {
		e.ops.release(o)
	}
	e.settle()
}
