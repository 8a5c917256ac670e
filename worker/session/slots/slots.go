// Package slots keeps the daemon's account of shared-memory slots: memory in which the ranks of one host reduce small
// tensors by themselves, without the daemon, whose part would take longer than the rest. "Slots" in
// worker/session/codec/PROTOCOL.md describes the memory and how ranks use it.
//
// A rank that submits an operation may offer to take a slot for the next one of the same name. When all ranks have
// offered and the operation succeeds, Assign gives the name a slot. From then on the ranks meet there, and the daemon
// only reads the memory: to name the ranks that others wait for. A rank that leaves is marked there, so that the ranks
// that wait for it submit to the daemon instead. Larger tensors stay where they are, in wide slots: each rank reduces a
// slice of all tensors, in memory that the daemon shows it (wide.go). Those in other memory go over a belt, part by
// part: it fits the caches, and none of its pages is new.
//
// The ranks' end of slots is in worker/rank and contrib/c/session/slots.h.
package slots

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"gorun/collective"
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// Table is the daemon's account of the slots of one world, whose ranks are all on this host. It decides which name has
// a slot, and marks in the shared memory which ranks have left. It is safe for concurrent use.
type Table struct {
	region *shm.Region
	ranks  []int // of the world, by their place on this host
	host   string

	mu     sync.Mutex
	used   int    // bytes
	past   uint64 // uses of slots that are no more
	names  map[string]*slot
	shown  map[shownRegion]uint32 // the ranks, by their place, that can see a region of another one
	closed bool                   // a rank has left or joined: no more slots
	gone   bool                   // the world has ended
}

// slot is what all ranks submit under one name. Offers, wide, belt and notified are sets of ranks by their place.
type slot struct {
	offers   uint32 // would take a slot after the use under way
	wide     uint32 // would take a wide one
	belt     uint32 // would take one on the belt
	notified uint32 // know how this use ended
	offset   int    // of the slot, 0 for none
	isWide   bool
	isBelt   bool
	bytes    int
	tensors  tensorsByPlace // of the ranks in wide
	shown    tensorsByPlace // of the ranks that were in wide when the use ended that ranks are being notified of

	seen  uint64    // the use that some rank waits for
	since time.Time // when that was first seen
}

// New returns the slots of a world. The ranks of the world are given by their place on the host. It returns nil for a
// world that can have no slots: with one rank, or too many.
func New(host string, ranks []int) (*Table, error) {
	if len(ranks) < 2 || len(ranks) > codec.MaxSlotRanks {
		return nil, nil
	}
	size := int64(codec.SlotsBytes + len(ranks)*codec.BeltArea)
	r, err := shm.Create(shm.NewBudget(size+shm.Granule), "gorun-slots", size)
	if err != nil {
		return nil, fmt.Errorf("make slots: %w", err)
	}
	return &Table{region: r, host: host, ranks: ranks, used: codec.MaxSlotRanks * codec.SlotLine, names: map[string]*slot{},
		shown: map[shownRegion]uint32{}}, nil
}

// Region is the shared memory. The table has one reference to it; its owner releases that.
func (t *Table) Region() *shm.Region { return t.region }

// Ranks lists the ranks of the world by their place. It must not be changed.
func (t *Table) Ranks() []int { return t.ranks }

// Place returns the place of a rank, -1 for none.
func (t *Table) Place(rank int) int { return slices.Index(t.ranks, rank) }

// word is a number in the shared memory.
func word[T any](t *Table, at int) *T { return (*T)(unsafe.Pointer(&t.region.Bytes()[at])) }

// Offer is what a rank would take for the next use of a name. The zero Offer is nothing.
type Offer struct {
	Slot, Wide, Belt bool
	Tensors          Tensors // if wide
}

// Offer notes what a rank offers with a tensor of n bytes, which it is about to submit under a name.
func (t *Table) Offer(rank int, name string, n int, o Offer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	willing := o.Slot && n > 0 && (n <= codec.MaxSlotBytes || o.Wide && n <= codec.MaxWideBytes || o.Belt && n <= codec.MaxBeltBytes)
	place := t.Place(rank)
	one := uint32(1) << place
	x := t.names[name]
	switch {
	case t.closed:
		return
	case x == nil && (!willing || len(t.names) >= codec.MaxSlots):
		return
	case x == nil:
		x = &slot{}
		t.names[strings.Clone(name)] = x
	}
	x.offers, x.wide, x.belt = x.offers&^one, x.wide&^one, x.belt&^one
	if willing {
		x.offers |= one
	}
	if willing && o.Wide && o.Tensors.In.Memory != nil && o.Tensors.Out.Memory != nil {
		x.wide |= one
		x.tensors.hold(place, o.Tensors)
	}
	if willing && o.Belt {
		x.belt |= one
	}
	x.bytes = n
}

// Assign returns where the slot of a name is, now that a rank is about to be notified of the end of an operation, 0 for
// none. For a wide slot the offset has WideSlot added, and the rank must be shown the memory that comes along, which
// the caller releases; for one on the belt it has BeltSlot added. All ranks get the same answer for the same use: it is
// decided for the first, when all have submitted. The first may submit the next use before the others are notified.
func (t *Table) Assign(rank int, name string, failed bool) (offset int, _ []Showing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.names[name]
	if x == nil || t.closed && x.notified == 0 { // the answer for a use does not change
		return 0, nil
	}
	all := uint32(1)<<len(t.ranks) - 1
	if failed {
		t.closeLocked(x)
		x.offers, x.wide, x.belt, x.notified = 0, 0, 0, 0
		x.tensors.drop()
		x.shown.drop()
		return 0, nil
	}
	if x.notified == 0 {
		t.closeLocked(x)
		x.isWide = x.wide == all && x.bytes > codec.MinWideBytes
		x.isBelt = !x.isWide && x.belt == all && x.bytes > codec.MaxSlotBytes
		switch {
		case x.offers != all:
		case x.isWide, x.isBelt:
			x.offset = t.takeLocked(0)
		case x.bytes <= codec.MaxSlotBytes:
			x.offset = t.takeLocked(x.bytes)
		}
		x.offers, x.wide, x.belt = 0, 0, 0
		x.shown.drop()
		x.tensors, x.shown = x.shown, x.tensors
	}
	self := t.Place(rank)
	one := uint32(1) << self
	var shows []Showing
	if offset = x.offset; offset != 0 && x.isWide {
		offset += codec.WideSlot
		shows = t.showsLocked(x, self)
	} else if offset != 0 && x.isBelt {
		offset += codec.BeltSlot
	}
	if x.notified |= one; x.notified == all {
		x.notified = 0
		x.shown.drop()
	}
	return offset, shows
}

// Met returns how many uses all ranks have come to, of all slots that there ever were.
func (t *Table) Met() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.past
	for _, x := range t.names {
		n += t.metLocked(x)
	}
	return n
}

func (t *Table) metLocked(x *slot) uint64 {
	if x.offset == 0 {
		return 0
	}
	least := uint64(math.MaxUint64)
	for i := range t.ranks {
		least = min(least, atomic.LoadUint64(word[uint64](t, x.offset+i*codec.SlotLine)))
	}
	return least / 2
}

// closeLocked takes the slot of a name away.
func (t *Table) closeLocked(x *slot) {
	if !t.gone { // else no one asks
		t.past += t.metLocked(x)
	}
	x.offset = 0
}

// takeLocked returns the offset of memory for a slot with buffers of n bytes, 0 if there is no more.
func (t *Table) takeLocked(n int) int {
	need := len(t.ranks) * (codec.SlotLine + 2*codec.SlotStride(n))
	if need > codec.SlotsBytes-t.used {
		return 0
	}
	at := t.used
	t.used += need
	return at
}

// Leave marks a rank that comes to no slot any more: ranks that wait for it there submit to the daemon.
func (t *Table) Leave(rank int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if place := t.Place(rank); place >= 0 {
		atomic.CompareAndSwapUint32(word[uint32](t, place*codec.SlotLine+codec.SlotLeft), 0, codec.RankLeft)
	}
}

// End marks the end of the world: nothing is completed in a slot any more. A rank that comes later would otherwise
// complete there what has failed for others.
func (t *Table) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.gone = true, true
	for place := range t.ranks {
		atomic.StoreUint32(word[uint32](t, place*codec.SlotLine+codec.SlotLeft), codec.WorldGone)
	}
}

// Asleep reports whether a rank sleeps in a slot.
func (t *Table) Asleep(rank int) bool {
	place := t.Place(rank)
	return place >= 0 && atomic.LoadUint32(word[uint32](t, place*codec.SlotLine+codec.SlotAsleep)) != 0
}

// Waiting lists the slots in which some ranks wait for others. Since counts from the first call that saw it.
func (t *Table) Waiting(now time.Time) []collective.Stall {
	t.mu.Lock()
	defer t.mu.Unlock()
	var stalls []collective.Stall
	for name, x := range t.names {
		if x.offset == 0 {
			continue
		}
		// A word is twice the number of uses that its rank came to, plus one if it never comes again.
		var most uint64
		words := make([]uint64, len(t.ranks))
		odd := uint64(0)
		for i := range words {
			words[i] = atomic.LoadUint64(word[uint64](t, x.offset+i*codec.SlotLine))
			most, odd = max(most, words[i]), odd|words[i]&1
		}
		var missing []int
		for i, w := range words {
			if w < most {
				missing = append(missing, t.ranks[i])
			}
		}
		if len(missing) == 0 && x.isWide { // all have come: who is not done with its slice?
			for i := range words {
				if done := atomic.LoadUint64(word[uint64](t, x.offset+i*codec.SlotLine+codec.SlotDone)); 2*done < most {
					missing = append(missing, t.ranks[i])
				}
			}
		}
		if len(missing) == 0 || odd != 0 || t.closed {
			x.seen = 0
			continue
		}
		if x.seen != most {
			x.seen, x.since = most, now
		}
		stalls = append(stalls, collective.Stall{Kind: collective.Allreduce, Name: name, Since: x.since,
			Missing: []collective.Absent{{Host: t.host, Ranks: missing}}})
	}
	slices.SortFunc(stalls, collective.Older)
	return stalls
}

// Sum is what the ranks add up in a slot.
type Sum struct {
	Name  string
	Bytes int
	Ranks []int
	Times []uint64 // how often each of them came
}

// Sums lists what has been added up in the slots that there are, at most that many: those in which ranks were most often.
func (t *Table) Sums(most int) (all []Sum) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, x := range t.names {
		if x.offset == 0 {
			continue
		}
		s := Sum{Name: name, Bytes: x.bytes, Ranks: t.ranks}
		for i := range t.ranks {
			s.Times = append(s.Times, atomic.LoadUint64(word[uint64](t, x.offset+i*codec.SlotLine))/2)
		}
		if slices.Max(s.Times) > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(slices.Max(b.Times), slices.Max(a.Times)), strings.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), most)]
}
