package session

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"gorun/collective"
	"gorun/worker/shm"
)

// Limits of slots. They bound what ranks can make the daemon keep: a slot is never taken back.
const (
	maxSlotRanks = 16
	maxSlotBytes = 64 << 10 // of a tensor
	maxSlots     = 4096
	slotsBytes   = 32 << 20 // of shared memory, of which only what is used costs anything

	slotLine   = 64 // bytes, a cache line
	slotLeft   = 0  // in the line of a rank: it will never again come to a slot, because of
	slotAsleep = 4  // in the line of a rank: it wants to be woken
	slotDone   = 8  // in the line of a rank of a slot: the use that it is done with

	rankLeft  = 1 // itself, or
	worldGone = 2 // the end of the world, which GONE tells about
)

// slots is where the ranks of a world of one host reduce small tensors by themselves, without the daemon, whose
// part would take longer than the rest. PROTOCOL.md describes the memory and how ranks use it. The daemon decides
// which name has a slot, and says who has left.
type slots struct {
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

// slot is what all ranks submit under one name. Offers and told are sets of ranks by their place.
type slot struct {
	offers uint32 // those that would take a slot after the use under way
	wide   uint32 // those of them that would take a wide one
	told   uint32 // those that know how this use ended
	offset int    // of the slot, 0 for none
	isWide bool
	bytes  int
	parts  parts // of those in wide
	shown  parts // of those that were in it when the use ended that ranks are being told of

	seen  uint64    // the use that somebody waits for
	since time.Time // when that was first seen
}

// newSlots returns the slots of a world, nil if it can have none.
func newSlots(w World) (*slots, error) {
	if w.Hosts != 1 || len(w.Places) != w.Size || w.Size < 2 || w.Size > maxSlotRanks {
		return nil, nil
	}
	r, err := shm.Create(shm.NewBudget(slotsBytes), "gorun-slots", slotsBytes)
	if err != nil {
		return nil, fmt.Errorf("make slots: %w", err)
	}
	l := &slots{region: r, host: w.Host, ranks: make([]int, w.Size), used: maxSlotRanks * slotLine, names: map[string]*slot{},
		shown: map[shownRegion]uint32{}}
	for _, p := range w.Places {
		l.ranks[p.LocalRank] = p.Rank
	}
	return l, nil
}

func (l *slots) place(rank int) int { return slices.Index(l.ranks, rank) }

// word is a number in the shared memory.
func word[T any](l *slots, at int) *T { return (*T)(unsafe.Pointer(&l.region.Bytes()[at])) }

// offer is what a rank would take for the next use of a name.
type offer struct {
	slot, wide bool
	part       part // if wide
}

// offer notes before a rank's part, of n bytes, is submitted whether the rank would take a slot for the next one.
func (l *slots) offer(rank int, name string, n int, o offer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	willing := o.slot && n > 0 && (n <= maxSlotBytes || o.wide && n <= maxWideBytes)
	place := l.place(rank)
	one := uint32(1) << place
	x := l.names[name]
	switch {
	case l.closed:
		return
	case x == nil && (!willing || len(l.names) >= maxSlots):
		return
	case x == nil:
		x = &slot{}
		l.names[strings.Clone(name)] = x
	}
	x.offers, x.wide = x.offers&^one, x.wide&^one
	if willing {
		x.offers |= one
	}
	if willing && o.wide && o.part.in.region != nil && o.part.out.region != nil {
		x.wide |= one
		x.parts.hold(place, o.part)
	}
	x.bytes = n
}

// assign returns where the slot of a name is, now that a rank is told of the end of its part, 0 for none. If the
// slot is a wide one, the rank must be shown the memory that comes along, which the caller releases. All
// ranks get the same answer for the same use: it is decided for the first that is told, when all have submitted. That one
// may submit its part of the next use before the others are told.
func (l *slots) assign(rank int, name string, failed bool) (place int, _ []showing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.names[name]
	if x == nil || l.closed && x.told == 0 { // those that come after one that was told are told the same
		return 0, nil
	}
	all := uint32(1)<<len(l.ranks) - 1
	if failed {
		l.closeLocked(x)
		x.offers, x.wide, x.told = 0, 0, 0
		x.parts.drop()
		x.shown.drop()
		return 0, nil
	}
	if x.told == 0 {
		l.closeLocked(x)
		x.isWide = x.wide == all && x.bytes > minWideBytes
		switch {
		case x.offers != all:
		case x.isWide:
			x.offset = l.takeLocked(0)
		case x.bytes <= maxSlotBytes:
			x.offset = l.takeLocked(x.bytes)
		}
		x.offers, x.wide = 0, 0
		x.shown.drop()
		x.parts, x.shown = x.shown, x.parts
	}
	self := l.place(rank)
	one := uint32(1) << self
	var shows []showing
	if place = x.offset; place != 0 && x.isWide {
		place += wideSlot
		shows = l.showsLocked(x, self)
	}
	if x.told |= one; x.told == all {
		x.told = 0
		x.shown.drop()
	}
	return place, shows
}

// met returns how many uses all ranks have come to, of all slots that there ever were.
func (l *slots) met() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.past
	for _, x := range l.names {
		n += l.metLocked(x)
	}
	return n
}

func (l *slots) metLocked(x *slot) uint64 {
	if x.offset == 0 {
		return 0
	}
	least := uint64(math.MaxUint64)
	for i := range l.ranks {
		least = min(least, atomic.LoadUint64(word[uint64](l, x.offset+i*slotLine)))
	}
	return least / 2
}

// closeLocked takes the slot of a name away.
func (l *slots) closeLocked(x *slot) {
	if !l.gone { // else nobody asks any more
		l.past += l.metLocked(x)
	}
	x.offset = 0
}

// takeLocked returns the offset of memory for a slot with buffers of n bytes, 0 if there is no more.
func (l *slots) takeLocked(n int) int {
	need := len(l.ranks) * (slotLine + 2*strideOf(n))
	if need > int(l.region.Size())-l.used {
		return 0
	}
	at := l.used
	l.used += need
	return at
}

// strideOf returns the distance of buffers of n bytes.
func strideOf(n int) int { return (n + slotLine - 1) &^ (slotLine - 1) }

// leave says that a rank comes to no slot any more: those that wait for it there take the other way.
func (l *slots) leave(rank int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if place := l.place(rank); place >= 0 {
		atomic.CompareAndSwapUint32(word[uint32](l, place*slotLine+slotLeft), 0, rankLeft)
	}
}

// end says that nothing is completed in a slot any more: a rank that comes later would otherwise find there what
// others were told has failed.
func (l *slots) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.gone = true, true
	for place := range l.ranks {
		atomic.StoreUint32(word[uint32](l, place*slotLine+slotLeft), worldGone)
	}
}

func (l *slots) asleep(rank int) bool {
	place := l.place(rank)
	return place >= 0 && atomic.LoadUint32(word[uint32](l, place*slotLine+slotAsleep)) != 0
}

// waiting lists the slots in which some ranks wait for others. Since counts from the first call that saw it.
func (l *slots) waiting(now time.Time) []collective.Stall {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stalls []collective.Stall
	for name, x := range l.names {
		if x.offset == 0 {
			continue
		}
		// A word is twice the number of uses that its rank came to, plus one if it never comes again.
		var most uint64
		words := make([]uint64, len(l.ranks))
		odd := uint64(0)
		for i := range words {
			words[i] = atomic.LoadUint64(word[uint64](l, x.offset+i*slotLine))
			most, odd = max(most, words[i]), odd|words[i]&1
		}
		var missing []int
		for i, w := range words {
			if w < most {
				missing = append(missing, l.ranks[i])
			}
		}
		for i := range words {
			if len(missing) == 0 && x.isWide { // all have come: who is not done with its slice?
				if done := atomic.LoadUint64(word[uint64](l, x.offset+i*slotLine+slotDone)); 2*done < most {
					missing = append(missing, l.ranks[i])
				}
			}
		}
		if len(missing) == 0 || odd != 0 || l.closed {
			x.seen = 0
			continue
		}
		if x.seen != most {
			x.seen, x.since = most, now
		}
		stalls = append(stalls, collective.Stall{Kind: collective.Allreduce, Name: name, Since: x.since,
			Missing: []collective.Absent{{Host: l.host, Ranks: missing}}})
	}
	slices.SortFunc(stalls, collective.Older)
	return stalls
}

// setSlotsLocked makes the slots of a new world. Ranks of the last one do without from now on.
func (s *Server) setSlotsLocked(w World) {
	s.dropSlotsLocked()
	l, err := newSlots(w)
	if err != nil {
		s.cfg.Log.Warn("do without slots", "err", err)
	}
	s.slots = l
}

// dropSlotsLocked ends the slots; sessions keep the memory as long as they need it.
func (s *Server) dropSlotsLocked() {
	if s.slots == nil {
		return
	}
	for _, rank := range s.slots.ranks {
		s.slots.leave(rank)
	}
	s.slots.dropParts()
	s.wakeLocked(s.slots)
	s.slots.region.Release()
	s.slots = nil
}

// leaveSlots says that a rank comes to no slot any more.
func (s *Server) leaveSlots(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.slots == nil {
		return
	}
	x.slots.leave(x.rank)
	s.wakeLocked(x.slots)
}

// wakeLocked wakes all that sleep in their slots.
func (s *Server) wakeLocked(l *slots) {
	for _, rank := range l.ranks {
		if l.asleep(rank) {
			s.wakeRankLocked(l, rank)
		}
	}
}

func (s *Server) wakeRankLocked(l *slots, rank int) {
	for x := range s.sessions {
		if x.slots == l && x.rank == rank {
			x.sendWake()
		}
	}
}

// showSlots hands a rank the memory, and counts it among those that may use it.
func (s *session) showSlots() error {
	if s.slots == nil {
		return malformed("a wish for slots, where there are none")
	}
	s.inSlots = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = appendSlots(s.scratch[:0], s.slots.region.Size())
	s.sendLocked(s.scratch, s.slots.region)
	return nil
}

// offer tells the slots of a part that is about to be submitted.
func (s *session) offer(m *submit, o *operation, r *collective.Request) {
	switch {
	case s.slots == nil:
	case r.Kind == collective.Join:
		s.server.leaveSlots(s) // the others must not wait for it
	case r.Kind == collective.Allreduce && r.Group == 0 && s.inSlots:
		o.slot = r.Name
		s.slots.offer(s.rank, r.Name, len(r.In), offer{m.slot, m.wide, part{tenancy{m.in.region, o.in}, tenancy{m.out.region, o.out}}})
	}
}

func (s *session) sendWake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = appendPair(s.scratch[:0], typeWake, 0)
	s.sendLocked(s.scratch, nil)
}
