package collective

import (
	"cmp"
	"log/slog"

	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/schedule"
)

// Config is what an engine is made of. Segment, Direct, Cost, Algorithm and Coding decide how operations are cut
// and must be the same on all hosts.
type Config struct {
	Transport Transport // may be nil for a world of one host
	Alloc     Allocator // nil: the heap
	Room      int64     // bytes of the largest result that Alloc has memory for, 0 if there is no limit; hosts may differ
	Workers   int       // goroutines for reductions on one host alone, 0 for GOMAXPROCS
	Log       *slog.Logger
	Record    bool // the last operations, for Flight

	Segment int           // bytes of a segment, 0 for 512 KiB
	Direct  int           // largest operation in which every host sends to every other, 0 for 64 KiB, -1 for none
	Carry   int           // bytes that a ready message may carry, 0 for 256 KiB, -1 or without Direct for 2 KiB
	Inline  int           // largest local operation that is not handed to workers, 0 for 64 KiB, -1 for none
	Cost    schedule.Cost // of a message between two hosts, zero for a 10 Gbit/s network

	Algorithm schedule.Algorithm // of every allreduce; Auto: what costs least
	Coding    kernel.Coding      // of sums of floats between hosts whose request has none

	// Broken is called, once for a world and on any goroutine, if it cannot go on because of what a peer sent or did not
	// send. It must not block. May be nil.
	Broken func(peer int, err error)
	Stash  int // bytes that may come before operations of unknown size begin, 0 for 1 GiB
	Spill  int // bytes of the heap for results that Alloc has no memory for but other hosts need, 0 for 1 GiB
}

// Defaults of a Config.
const (
	defaultSegment = 512 << 10
	defaultCarry   = 256 << 10
	defaultInline  = 64 << 10
	defaultStash   = 1 << 30
	defaultSpill   = 1 << 30
)

var defaultCost = schedule.Cost{Alpha: 30e-6, Beta: 0.8e-9}

// DefaultDirect is the Direct of a Config that has none.
const DefaultDirect = 64 << 10

// limit reads a size from a Config: 0 is the default, less is none.
func limit(n, def int) int {
	if n == 0 {
		return def
	}
	return max(n, 0)
}

// settings are what a Config amounts to.
type settings struct {
	transport Transport
	allocator Allocator
	room      uint64 // for a result, 0 if there is no limit
	log       *slog.Logger
	broken    func(peer int, err error)
	segment   int64
	directMax int64
	carryMax  int64
	inlineMax int64
	stashMax  int64
	spillMax  int64
	usual     schedule.Cost // where a world has none of its own
	by        schedule.Algorithm
	coding    kernel.Coding
}

// settings fills in the defaults.
func (c Config) settings() settings {
	s := settings{
		transport: c.Transport,
		allocator: c.Alloc,
		room:      uint64(max(c.Room, 0)),
		log:       c.Log,
		broken:    c.Broken,
		segment:   int64(limit(c.Segment, defaultSegment)),
		directMax: int64(limit(c.Direct, DefaultDirect)),
		carryMax:  min(int64(limit(c.Carry, defaultCarry)), maxControl/2),
		inlineMax: int64(limit(c.Inline, defaultInline)),
		stashMax:  int64(limit(c.Stash, defaultStash)),
		spillMax:  int64(limit(c.Spill, defaultSpill)),
		usual:     cmp.Or(c.Cost, defaultCost),
		by:        c.Algorithm,
		coding:    c.Coding,
	}
	if c.Direct < 0 {
		s.carryMax = 0
	}
	// Segments are cut where chunks are, so that their borders are borders of elements and cache lines.
	s.segment = min(max(s.segment+schedule.Align-1, schedule.Align)&^(schedule.Align-1), link.MaxPayload)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.broken == nil {
		s.broken = func(peer int, err error) { s.log.Error("world is broken", "peer", peer, "err", err) }
	}
	if s.allocator == nil {
		s.allocator = heapAllocator{}
	}
	return s
}

// heap is result memory without an owner.
type heap []byte

func (h heap) Bytes() []byte { return h }
func (heap) Retain()         {}
func (heap) Release()        {}

type heapAllocator struct{}

func (heapAllocator) Alloc(n int) (Buffer, error) { return heap(make([]byte, n)), nil }

// Transport sends segments to other engines; link.Mesh is one. Send does not block and may be called
// from anywhere.
type Transport interface {
	Send(peer int, s *link.Segment)
}
