package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// Engine runs the operations of one host's ranks. Its methods may be called from any goroutine.
type Engine struct {
	settings
	pools
	spills  spills
	stashed atomic.Int64  // bytes, for operations of unknown size
	ended   atomic.Uint32 // the epoch whose world is broken
	workers workers

	strategies *registry

	epoch atomic.Uint32 // written with mu held

	mu          sync.Mutex
	groups      *directory
	ops         operations
	negotiation negotiation
	paused      paused
	world       EngineWorld
	cost        schedule.Cost    // of the world
	first       schedule.Cost    // the first one of the world: it decides what is inline
	channels    map[int]*channel // control messages, by peer
	stopped     *Error           // why nothing can be submitted
	past        *Error           // why the worlds before this one ended
}

var (
	errAborted = errors.New("operation was aborted")
	errUnknown = errors.New("no such operation here")
	errEpoch   = errors.New("segment of another epoch")
	errPeer    = errors.New("not a host of this world")
)

// New returns an engine that refuses everything until SetWorld.
func New(cfg Config) *Engine {
	e := &Engine{
		settings:   cfg.settings(),
		spills:     spills{limit: int64(limit(cfg.Spill, defaultSpill))},
		strategies: &strategies,
		stopped:    refuse("there is no world yet"),
		past:       &Error{Code: CodeAborted, Text: "the world of this rank has ended"},
	}
	e.workers.init(cmp.Or(max(cfg.Workers, 0), runtime.GOMAXPROCS(0)))
	e.pools.init(e)
	return e
}

// SetWorld begins an epoch: the engine hears other hosts, and takes what ranks submit. It is an error while
// operations of the last one are open.
func (e *Engine) SetWorld(w EngineWorld) error {
	if err := w.check(); err != nil {
		return fmt.Errorf("set world of epoch %d: %w", w.Epoch, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.ops.open {
		if !o.alone() { // those end by themselves
			return fmt.Errorf("set world of epoch %d: operations of epoch %d are open", w.Epoch, e.world.Epoch)
		}
	}
	if len(w.Hosts) > 1 && e.transport == nil {
		return fmt.Errorf("set world of epoch %d: %d hosts and no transport", w.Epoch, len(w.Hosts))
	}
	e.world, e.stopped = w, nil
	if e.cost = w.Cost; e.cost == (schedule.Cost{}) {
		e.cost = e.usual
	}
	e.first = e.cost
	e.epoch.Store(w.Epoch)
	e.groups, e.paused = newDirectory(w), paused{}
	e.ops = operations{open: map[uint64]*op{}, fresh: e.fresh}
	e.negotiation = &readiness{operations: &e.ops, groups: e.groups, inlines: e.inlines, room: e.room}
	e.channels = map[int]*channel{}
	for i, h := range w.Hosts {
		if i != w.Self {
			e.channels[h.ID] = &channel{}
		}
	}
	return nil
}

// SetCost sets what a message between two hosts of the world costs, the same on all of them, before a rank of
// this host submits anything; others may have.
func (e *Engine) SetCost(c schedule.Cost) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cost = c; c == (schedule.Cost{}) {
		e.cost = e.usual
	}
	e.first = e.cost
	for _, o := range e.ops.open {
		o.cost = e.cost
	}
}

// Submit takes a local rank's contribution to an operation. An error is an *Error and refuses this one only;
// if there is none, r.Client hears of the end.
func (e *Engine) Submit(rank int, r Request) error {
	if r.Kind == AddGroup && r.Group != 0 {
		return e.declare(rank, r)
	}
	if r.Kind == Peek {
		return e.peek(rank, r)
	}
	e.mu.Lock()
	if err := e.admit(rank, &r); err != nil {
		e.mu.Unlock()
		return err
	}
	var room [2]event
	todo := e.drain(room[:0])
	e.mu.Unlock()
	e.follow(todo)
	return nil
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

// admit checks a contribution and submits it. mu is held.
func (e *Engine) admit(rank int, r *Request) *Error {
	if err := e.refusal(r); err != nil {
		return err
	}
	if r.Kind == Send || r.Kind == Recv {
		if err := r.pair(rank, e.world.Size); err != nil {
			return err
		}
	} else if r.Group&pairs != 0 {
		return refuse("%s %q: no group %d", r.Kind, r.Name, r.Group)
	}
	g := e.groups.find(r.Group)
	if g == nil {
		return refuse("%s %q: no group %d with a rank on this host", r.Kind, r.Name, r.Group)
	}
	index := slices.Index(g.local(), rank)
	if index < 0 {
		return refuse("%s %q: rank %d is not a rank of group %d on this host", r.Kind, r.Name, rank, r.Group)
	}
	if r.Kind == Join {
		r.stamp = int(time.Now().UnixMicro())
	}
	if err := r.normalize(g, rank); err != nil {
		return err
	}
	r.Coding = e.CodingOf(*r)
	if err := e.groups.check(r); err != nil {
		return err
	}
	return e.negotiation.submit(g, index, *r)
}

// Leave reports that a local rank of the world of epoch takes part in nothing any more, because it left or its
// process ended.
// Operations that its host did not declare ready yet fail on all ranks, on its own too.
// Operations that are under way go on and still complete at its client.
func (e *Engine) Leave(epoch uint32, rank int) {
	e.mu.Lock()
	if e.stopped != nil || epoch != e.world.Epoch || !slices.Contains(e.world.Hosts[e.world.Self].Ranks, rank) {
		e.mu.Unlock()
		return
	}
	if e.paused.number > 0 {
		e.paused.leaving = append(e.paused.leaving, rank)
		e.mu.Unlock()
		return
	}
	e.negotiation.leave(rank)
	m := e.compose(e.world.Hosts, 0, appendLeave(nil, rank))
	var room [2]event
	more := e.drain(room[:0])
	e.mu.Unlock()
	e.post(m)
	e.follow(more)
}

// Abort fails every open operation and refuses new ones until the next SetWorld. The links must have let
// go of all segments before it, of those they send and of those they read: ranks get their memory back at
// once. What is reduced on this host alone ends normally.
func (e *Engine) Abort(err *Error) {
	e.mu.Lock()
	e.stopped, e.past = err, err
	var open []*op
	for id, o := range e.ops.open {
		if o.alone() {
			continue
		}
		open = append(open, o)
		delete(e.ops.open, id)
	}
	// No peer acknowledges any more what these sent: their ranks, and their memory, would wait for ever.
	open = append(open, e.ops.lasting...)
	e.ops.lasting = nil
	e.mu.Unlock()
	slices.SortFunc(open, func(a, b *op) int { return strings.Compare(a.name, b.name) })
	for _, o := range open {
		o.abort(err)
	}
}

// Run owns the workers. It returns when ctx ends or Close is called, after all of them did.
func (e *Engine) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, e.workers.stop)
	defer stop()
	e.workers.run()
	return nil
}

// Close fails what is open and returns after Run did.
func (e *Engine) Close() {
	e.Abort(&Error{Code: CodeAborted, Text: "the engine was closed"})
	e.workers.stop()
	e.workers.wait()
}

// Place implements link.Handler.
func (e *Engine) Place(peer int, h link.Header) ([]byte, error) {
	o, err := e.find(peer, &h)
	if o == nil {
		return nil, err
	}
	return o.place(peer, &h)
}

// Deliver implements link.Handler.
func (e *Engine) Deliver(peer int, h link.Header, payload []byte) {
	o, err := e.find(peer, &h)
	switch {
	case err != nil:
		e.log.Error("drop segment", "peer", peer, "err", err)
	case o != nil:
		o.deliver(peer, h, payload)
	default:
		e.hear(peer, &h, payload)
	}
}

// find returns the operation of a data segment; none and no error for a control segment.
func (e *Engine) find(peer int, h *link.Header) (*op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.Epoch != e.epoch.Load() {
		return nil, errEpoch
	}
	if e.channels[peer] == nil {
		return nil, errPeer
	}
	if h.Kind == link.Control {
		if h.Length > maxControl {
			return nil, errMessage
		}
		return nil, nil
	}
	// A peer sends data when it knows that all hosts are ready, so this one has its contributions, although it
	// may not have heard of every other host.
	if o := e.ops.open[h.Op]; o != nil && h.Kind == link.Data && o.declared(o.group.self) {
		return o, nil
	}
	return nil, errUnknown
}

// Describe returns, in words, how allreduces between all hosts of the world are done.
func (e *Engine) Describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	how := e.cost.Describe(len(e.world.Hosts), e.directMax)
	if e.by != schedule.Auto {
		how = "allreduce by " + e.by.String()
	}
	if e.coding > kernel.CodingNone {
		how += "; sums of float32 and float64 travel as " + e.coding.String()
	}
	return how
}

// tree reports whether a broadcast of n bytes goes along a tree.
func (e *Engine) tree(c schedule.Cost, n int64, hosts int) bool {
	return c.Tree(n, hosts) <= c.Chain(n, e.segment, hosts)
}

func (e *Engine) alloc(n int) (Buffer, error) { return e.allocator.Alloc(n) }

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
	if e.ops.open[o.id] == o && len(o.group.hosts) > 1 {
		e.ops.keep(o)
	}
	e.negotiation.finish(o)
	var room [2]event
	more := e.drain(room[:0])
	e.mu.Unlock()
	e.follow(more)
}

// init makes empty pools for an engine.
func (p *pools) init(e *Engine) {
	p.free.New = func() any { return &op{engine: e} }
	p.views.New = func() any { return new(view) }
	p.buffers.New = func() any { return new([]byte) }
	p.messages.New = func() any { return &message{engine: e} }
	p.pieces.New = func() any {
		p := new(piece)
		p.Owner = p
		return p
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
			v.message, v.send = e.compose(v.to, v.op.id, v.send), nil
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
			e.post(v.message)
		case v.start:
			v.op.start()
		case v.err != nil:
			v.op.fail(v.err)
		}
	}
}
