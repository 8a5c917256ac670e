// Package flight is the flight recorder of a host: it keeps the last operations of its ranks, and the last events and
// losses of its links, in memory of fixed size, so that after a stall or a failure there is a record of what led to it.
//
// The package is pure. Whoever owns a Ring brings the times and guards it: the engine's lock guards the operations, the
// daemon's loop owns the links. Adding to a Ring copies one element and allocates nothing.
package flight

import (
	"math"
	"time"
)

// How much is kept: together less than 1 MiB.
const (
	Operations = 4096
	Links      = 256
)

// Places is how many ranks of a host have their own time in an Operation. Of any others only the first and the last are noted.
const Places = 16

// maxName is how many bytes of a name are kept; of a longer one the beginning and the end are.
const maxName = 48

// Outcome is how an operation ended.
type Outcome uint8

// Outcomes.
const (
	Open   Outcome = iota // it has not ended
	Done                  // all ranks have the result
	Failed                // it ended with an error
)

func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Failed:
		return "failed"
	default:
		return "open"
	}
}

// Operation is one use of a name, as this host saw it. Times are in nanoseconds since the recorder began, 0 for what
// has not happened.
type Operation struct {
	ID        uint64 // of group and name
	Number    uint64 // counts the operations of this host from 1, in the order in which it heard of them
	Size      int64  // bytes of a rank's tensor
	First     int64  // when the first rank of this host contributed
	Last      int64  // when the last one did
	Hosts     int64  // when the last other host declared its ranks ready
	Began     int64  // when all were
	Ended     int64
	Epoch     uint32
	Group     uint32
	FirstRank int32
	LastRank  int32
	LastHost  int32 // id of the host that declared last; -1 if none did
	Kind      uint8
	Type      uint8
	Outcome   Outcome
	length    uint8
	came      [Places]uint32 // when ranks of this host contributed, by their place in the group: microseconds after First, plus one
	name      [maxName]byte
}

// SetName keeps a name.
func (o *Operation) SetName(name string) {
	if len(name) <= maxName {
		o.length = uint8(copy(o.name[:], name))
		return
	}
	const head, dots = 16, "…"
	n := copy(o.name[:], name[:head])
	n += copy(o.name[n:], dots)
	o.length = uint8(n + copy(o.name[n:], name[len(name)-(maxName-n):]))
}

// Name returns the name, or what is kept of it.
func (o *Operation) Name() string { return string(o.name[:o.length]) }

// Contributed takes note of a contribution of a local rank, which has a place among those of the group: the first one, the
// last one, or one between them.
func (o *Operation) Contributed(now int64, rank, place int, last bool) {
	if o.First == 0 {
		o.First, o.FirstRank = now, int32(rank)
	}
	if last {
		o.Last, o.LastRank = now, int32(rank)
	}
	if place < Places {
		o.came[place] = uint32(min((now-o.First)/1000, math.MaxUint32-1)) + 1
	}
}

// Came returns how long after the first rank the one with a place contributed; false if it has not, or if its time was not kept.
func (o *Operation) Came(place int) (after time.Duration, ok bool) {
	if place >= Places || o.came[place] == 0 {
		return 0, false
	}
	return time.Duration(o.came[place]-1) * time.Microsecond, true
}

// Heard takes note that another host has declared its ranks ready.
func (o *Operation) Heard(now int64, host int) { o.Hosts, o.LastHost = now, int32(host) }

// What happened to a link.
const (
	Broke   uint8 = iota + 1 // a connection ended, and is replaced
	Resumed                  // another one carries on, and sends again what was lost
)

// Link is an event of a link between two hosts.
type Link struct {
	At     int64 // in nanoseconds since the recorder began
	Peer   int   // id of the other host
	Stream int
	What   uint8
	Resent int // segments that the new connection sends again
}

// Ring keeps the last elements that were added. The zero value keeps nothing.
type Ring[T any] struct {
	kept  []T
	added uint64
}

// NewRing returns a ring for a number of elements.
func NewRing[T any](size int) *Ring[T] { return &Ring[T]{kept: make([]T, size)} }

// Add keeps an element in place of the oldest one.
func (r *Ring[T]) Add(e *T) {
	if len(r.kept) > 0 {
		r.kept[r.added%uint64(len(r.kept))] = *e
		r.added++
	}
}

// Latest appends the latest elements to all, at most that many, the oldest first.
func (r *Ring[T]) Latest(all []T, most int) []T {
	n := min(r.added, uint64(len(r.kept)), uint64(max(most, 0)))
	for i := r.added - n; i < r.added; i++ {
		all = append(all, r.kept[i%uint64(len(r.kept))])
	}
	return all
}
