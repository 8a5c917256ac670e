package collective

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Transport sends segments to other engines; link.Mesh is one. Send does not block and may be called
// from anywhere.
type Transport interface {
	Send(peer int, s *link.Segment)
}

// Config is what an engine is made of. Segment, Direct, Cost, Algorithm and Coding decide how operations are cut
// and must be the same on all hosts.
type Config struct {
	Transport Transport // may be nil for a world of one host
	Alloc     Allocator // nil: the heap
	Room      int64     // bytes of the largest result that Alloc has memory for, 0 if there is no limit; hosts may differ
	Workers   int       // goroutines for reductions on one host alone, 0 for GOMAXPROCS
	Log       *slog.Logger

	Segment  int           // bytes of a segment, 0 for 512 KiB
	Direct   int           // largest operation in which every host sends to every other unless told, 0 for 64 KiB, -1 for none
	RingPart int           // least bytes that each host adds in each of several rings, 0 for 32 KiB; smaller tensors use one ring
	Inline   int           // largest local operation that is not handed to workers, 0 for 64 KiB, -1 for none
	Cost     schedule.Cost // of a message between two hosts, zero for a 10 Gbit/s network

	Algorithm schedule.Algorithm // of every allreduce; Auto: what costs least
	Coding    kernel.Coding      // of sums of floats between hosts that say nothing themselves; none unless told

	// Broken is told, once for a world and on any goroutine, that it cannot go on because of what a peer sent or did not
	// send. It must not block. May be nil.
	Broken func(peer int, err error)
	Stash  int // bytes that may come before operations of unknown size begin, 0 for 1 GiB
	Detour int // bytes of the heap for results that Alloc has no memory for but other hosts need, 0 for 1 GiB
}

// Defaults of a Config.
const (
	defaultSegment  = 512 << 10
	defaultRingPart = 32 << 10
	defaultInline   = 64 << 10
	defaultStash    = 1 << 30
	defaultDetour   = 1 << 30
)

var defaultCost = schedule.Cost{Alpha: 30e-6, Beta: 0.8e-9}

// DefaultDirect is the Direct of a Config that says nothing.
const DefaultDirect = 64 << 10

// Engine runs the operations of one host's ranks. Its methods may be called from any goroutine.
type Engine struct {
	transport Transport
	allocator Allocator
	room      uint64
	log       *slog.Logger
	segment   int64
	ringPart  int64
	directMax int64
	inlineMax int64
	usual     schedule.Cost // where a world has none of its own
	by        schedule.Algorithm
	coding    kernel.Coding
	broken    func(peer int, err error)
	stashMax  int64
	spills    spills
	stashed   atomic.Int64  // bytes, for operations of unknown size
	ended     atomic.Uint32 // the epoch whose world is broken
	workers   workers

	strategies *registry

	epoch atomic.Uint32 // written with mu held

	mu       sync.Mutex
	table    table
	world    World
	cost     schedule.Cost    // of the world
	early    schedule.Cost    // the first one, by which parts travel with announcements or not
	channels map[int]*channel // control messages, by peer
	stopped  *Error           // why nothing can be submitted
	past     *Error           // why the worlds before this one ended

	pooled   sync.Pool // *op
	pieces   sync.Pool // *piece
	views    sync.Pool // *view
	messages sync.Pool // *message
	buffers  sync.Pool // *[]byte, for a segment
	tiles    sync.Pool // *tiles
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
		transport:  cfg.Transport,
		allocator:  cfg.Alloc,
		room:       uint64(max(cfg.Room, 0)),
		log:        cfg.Log,
		segment:    int64(limit(cfg.Segment, defaultSegment)),
		ringPart:   int64(limit(cfg.RingPart, defaultRingPart)),
		directMax:  int64(limit(cfg.Direct, DefaultDirect)),
		inlineMax:  int64(limit(cfg.Inline, defaultInline)),
		usual:      cfg.Cost,
		by:         cfg.Algorithm,
		coding:     cfg.Coding,
		broken:     cfg.Broken,
		stashMax:   int64(limit(cfg.Stash, defaultStash)),
		spills:     spills{limit: int64(limit(cfg.Detour, defaultDetour))},
		strategies: &strategies,
		stopped:    refuse("there is no world yet"),
		past:       &Error{Code: CodeAborted, Text: "the world of this rank has ended"},
	}
	// Segments are cut where chunks are, so that their borders are borders of elements and cache lines.
	e.segment = min(max(e.segment+schedule.Align-1, schedule.Align)&^(schedule.Align-1), link.MaxPayload)
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.broken == nil {
		e.broken = func(peer int, err error) { e.log.Error("world is broken", "peer", peer, "err", err) }
	}
	if e.allocator == nil {
		e.allocator = heapAllocator{}
	}
	if e.usual == (schedule.Cost{}) {
		e.usual = defaultCost
	}
	count := cfg.Workers
	if count <= 0 {
		count = runtime.GOMAXPROCS(0)
	}
	e.workers.init(count)
	e.pooled.New = func() any { return &op{engine: e} }
	e.views.New = func() any { return new(view) }
	e.tiles.New = func() any { return new(tiles) }
	e.buffers.New = func() any { return new([]byte) }
	e.messages.New = func() any { return &message{engine: e} }
	e.pieces.New = func() any {
		p := new(piece)
		p.Owner = p
		return p
	}
	return e
}

// limit reads a size from a Config: 0 is the default, less is none.
func limit(n, def int) int {
	if n == 0 {
		return def
	}
	return max(n, 0)
}

// SetWorld begins an epoch: the engine hears other hosts, and takes what ranks submit. It is an error while
// operations of the last one are open.
func (e *Engine) SetWorld(w World) error {
	if err := w.check(); err != nil {
		return fmt.Errorf("set world of epoch %d: %w", w.Epoch, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.table.ops {
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
	e.early = e.cost
	e.epoch.Store(w.Epoch)
	e.table = table{groups: map[uint32]*group{}, sets: map[uint32][]int{}, next: 1, ops: map[uint64]*op{}, fresh: e.fresh, inlines: e.inlines, room: e.room}
	e.channels = map[int]*channel{}
	for i, h := range w.Hosts {
		if i != w.Self {
			e.channels[h.ID] = &channel{}
		}
	}
	if g := newGroup(w, 0, nil); g != nil {
		e.table.groups[0], e.table.sets[0] = g, g.ranks
	}
	return nil
}

// SetCost says what a message between two hosts of the world costs, the same on all of them, before a rank of
// this host submits anything; others may have.
func (e *Engine) SetCost(c schedule.Cost) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cost = c; c == (schedule.Cost{}) {
		e.cost = e.usual
	}
	e.early = e.cost
	for _, o := range e.table.ops {
		o.cost = e.cost
	}
}

// Submit hands in a local rank's part of an operation. An error is an *Error and refuses this part only;
// if there is none, r.Client hears of the end.
func (e *Engine) Submit(rank int, r Request) error {
	if r.Kind == AddGroup && r.Group != 0 {
		return e.declare(rank, r)
	}
	if r.Kind == Peek {
		return e.peek(rank, r)
	}
	e.mu.Lock()
	o, v, err := e.admit(rank, &r)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	var m *message
	if v.announce {
		m = e.compose(o.group.hosts, o.group.self, o.id, o.votes[o.group.self].raw)
	}
	var room [1]standing
	more := e.drain(room[:0])
	e.mu.Unlock()
	e.post(m)
	e.act(o, v)
	e.follow(more)
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

// admit checks a part and takes it into the table. mu is held.
func (e *Engine) admit(rank int, r *Request) (*op, verdict, *Error) {
	if err := e.refusal(r); err != nil {
		return nil, verdict{}, err
	}
	if r.Kind == Send || r.Kind == Recv {
		if err := r.pair(rank, e.world.Size); err != nil {
			return nil, verdict{}, err
		}
	} else if r.Group&pairs != 0 {
		return nil, verdict{}, refuse("%s %q: no group %d", r.Kind, r.Name, r.Group)
	}
	g := e.table.group(r.Group)
	if g == nil {
		return nil, verdict{}, refuse("%s %q: no group %d with a rank on this host", r.Kind, r.Name, r.Group)
	}
	index := slices.Index(g.local(), rank)
	if index < 0 {
		return nil, verdict{}, refuse("%s %q: rank %d is not a rank of group %d on this host", r.Kind, r.Name, rank, r.Group)
	}
	if r.Kind == Join {
		r.stamp = int(time.Now().UnixMicro())
	}
	if err := r.normalize(g, rank); err != nil {
		return nil, verdict{}, err
	}
	r.Coding = e.CodingOf(*r)
	if err := e.table.checkGroups(r); err != nil {
		return nil, verdict{}, err
	}
	return e.table.submit(g, index, r)
}

// act inlines out a verdict. No lock is held.
func (e *Engine) act(o *op, v verdict) {
	switch {
	case v.start:
		o.start()
	case v.err != nil:
		o.fail(v.err)
	}
}

// Leave says that a local rank of the world of epoch takes part in nothing any more, because it said so or its
// process ended.
// Operations that its host did not declare ready yet fail on all ranks; its own parts in them too.
// Operations that are under way go on and still tell its client.
func (e *Engine) Leave(epoch uint32, rank int) {
	e.mu.Lock()
	if e.stopped != nil || epoch != e.world.Epoch || !slices.Contains(e.world.Hosts[e.world.Self].Ranks, rank) {
		e.mu.Unlock()
		return
	}
	if e.table.gate.number > 0 {
		// What it submitted before is not declared yet.
		e.table.gate.leaving = append(e.table.gate.leaving, rank)
		e.mu.Unlock()
		return
	}
	failed := e.table.leave(rank)
	m := e.compose(e.world.Hosts, e.world.Self, 0, appendLeave(nil, rank))
	var room [1]standing
	more := e.drain(room[:0])
	e.mu.Unlock()
	e.post(m)
	for _, f := range failed {
		f.op.fail(f.err)
	}
	e.follow(more)
}

// Abort fails every open operation and refuses new ones until the next SetWorld. The links must have let
// go of all segments before it, of those they send and of those they read: ranks get their memory back at
// once. What is reduced on this host alone ends normally.
func (e *Engine) Abort(err *Error) {
	e.mu.Lock()
	e.stopped, e.past = err, err
	var open []*op
	for id, o := range e.table.ops {
		if o.alone() {
			continue
		}
		open = append(open, o)
		delete(e.table.ops, id)
	}
	// No peer says any more that it has what these sent: their ranks, and their memory, would wait for ever.
	open = append(open, e.table.lasting...)
	e.table.lasting = nil
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
	// A peer sends data when it knows that all hosts are ready, so this one has its parts, although it
	// may not have heard of every other host.
	if o := e.table.ops[h.Op]; o != nil && h.Kind == link.Data && o.votes[o.group.self].set {
		return o, nil
	}
	return nil, errUnknown
}

// Describe says in words how allreduces between all hosts of the world are done.
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
	o := e.pooled.Get().(*op)
	o.reset(g, e.world.Epoch, id, name)
	o.cost = e.cost
	return o
}

// remove frees an op's name for its next use.
func (e *Engine) remove(o *op) {
	e.mu.Lock()
	if e.table.ops[o.id] == o && len(o.votes) > 1 {
		e.table.keep(o)
	}
	e.table.remove(o)
	var room [1]standing
	more := e.drain(room[:0])
	e.mu.Unlock()
	e.follow(more)
}

func (e *Engine) recycle(o *op) {
	o.forget()
	e.pooled.Put(o)
}

func (e *Engine) release(p *piece) {
	p.op, p.Payload = nil, nil
	e.pieces.Put(p)
}

func (e *Engine) view() *view {
	v := e.views.Get().(*view)
	v.dst, v.src = v.dst[:0], v.src[:0]
	return v
}

// heap is result memory without an owner.
type heap []byte

func (h heap) Bytes() []byte { return h }
func (heap) Retain()         {}
func (heap) Release()        {}

type heapAllocator struct{}

func (heapAllocator) Alloc(n int) (Buffer, error) { return heap(make([]byte, n)), nil }
