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
	Log       *slog.Logger
	Record    bool // the last operations, for Flight

	// Bytes; 0 is the default that is named, and -1 is none.
	Segment int64         // of a segment: 512 KiB
	Direct  int64         // of the largest operation in which every host sends to every other: 64 KiB
	Carry   int64         // that a ready message may carry: 256 KiB, without Direct 2 KiB
	Inline  int64         // of the largest local operation that is not handed to workers: 64 KiB
	Stash   int64         // that may come before operations of unknown size begin: 1 GiB
	Spill   int64         // of the heap for results that Alloc has no memory for but other hosts need: 1 GiB
	Cost    schedule.Cost // of a message between two hosts, zero for a 10 Gbit/s network

	Algorithm schedule.Algorithm // of every allreduce; Auto: what costs least
	Coding    kernel.Coding      // of sums of floats between hosts whose request has none

	// Broken is called, once for a world and on any goroutine, if it cannot go on because of what a peer sent or did not
	// send. It must not block. May be nil.
	Broken func(peer int, err error)
}

// withDefaults returns the configuration with all defaults filled in.
func (c Config) withDefaults() Config {
	limit := func(n, usual int64) int64 { return max(cmp.Or(n, usual), 0) }
	if c.Carry = min(limit(c.Carry, 256<<10), maxControl/2); c.Direct < 0 {
		c.Carry = 0
	}
	// Segments are cut where chunks are, so that their borders are borders of elements and cache lines.
	c.Segment = min(max(limit(c.Segment, 512<<10)+schedule.Align-1, schedule.Align)&^(schedule.Align-1), link.MaxPayload)
	c.Direct, c.Inline = limit(c.Direct, 64<<10), limit(c.Inline, 64<<10)
	c.Stash, c.Spill = limit(c.Stash, 1<<30), limit(c.Spill, 1<<30)
	c.Cost = cmp.Or(c.Cost, schedule.Cost{Alpha: 30e-6, Beta: 0.8e-9})
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Broken == nil {
		c.Broken = func(peer int, err error) { c.Log.Error("world is broken", "peer", peer, "err", err) }
	}
	if c.Alloc == nil {
		c.Alloc = heapAllocator{}
	}
	return c
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
