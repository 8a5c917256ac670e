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

// Limits of lanes. They bound what ranks can make the daemon keep: a lane is never taken back.
const (
	maxLaneRanks = 16
	maxLaneBytes = 64 << 10 // of a tensor
	maxLanes     = 4096
	lanesBytes   = 32 << 20 // of shared memory, of which only what is used costs anything

	laneLine   = 64 // bytes, a cache line
	laneLeft   = 0  // in the line of a rank: it will never again come to a lane, because of
	laneAsleep = 4  // in the line of a rank: it wants to be woken
	laneDone   = 8  // in the line of a rank of a lane: the use that it is done with

	rankLeft  = 1 // itself, or
	worldGone = 2 // the end of the world, which GONE tells about
)

// lanes is where the ranks of a world of one host reduce small tensors by themselves, without the daemon, whose
// part would take longer than the rest. PROTOCOL.md describes the memory and how ranks use it. The daemon decides
// which name has a lane, and says who has left.
type lanes struct {
	region *shm.Region
	ranks  []int // of the world, by their place on this host
	host   string

	mu     sync.Mutex
	used   int    // bytes
	past   uint64 // uses of lanes that are no more
	names  map[string]*lane
	shown  map[shownRegion]uint32 // the ranks, by their place, that can see a region of another one
	closed bool                   // a rank has left or joined: no more lanes
	gone   bool                   // the world has ended
}

// lane is what all ranks submit under one name. Offers and told are sets of ranks by their place.
type lane struct {
	offers uint32 // those that would take a lane after the use under way
	wide   uint32 // those of them that would take a wide one
	told   uint32 // those that know how this use ended
	offset int    // of the lane, 0 for none
	isWide bool
	bytes  int
	parts  parts // of those in wide
	shown  parts // of those that were in it when the use ended that ranks are being told of

	seen  uint64    // the use that somebody waits for
	since time.Time // when that was first seen
}

// newLanes returns the lanes of a world, nil if it can have none.
func newLanes(w World) (*lanes, error) {
	if w.Hosts != 1 || len(w.Places) != w.Size || w.Size < 2 || w.Size > maxLaneRanks {
		return nil, nil
	}
	r, err := shm.Create(shm.NewBudget(lanesBytes), "gorun-lanes", lanesBytes)
	if err != nil {
		return nil, fmt.Errorf("make lanes: %w", err)
	}
	l := &lanes{region: r, host: w.Host, ranks: make([]int, w.Size), used: maxLaneRanks * laneLine, names: map[string]*lane{},
		shown: map[shownRegion]uint32{}}
	for _, p := range w.Places {
		l.ranks[p.LocalRank] = p.Rank
	}
	return l, nil
}

func (l *lanes) place(rank int) int { return slices.Index(l.ranks, rank) }

// word is a number in the shared memory.
func word[T any](l *lanes, at int) *T { return (*T)(unsafe.Pointer(&l.region.Bytes()[at])) }

// offer is what a rank would take for the next use of a name.
type offer struct {
	lane, wide bool
	part       part // if wide
}

// offer notes before a rank's part, of n bytes, is submitted whether the rank would take a lane for the next one.
func (l *lanes) offer(rank int, name string, n int, o offer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	willing := o.lane && n > 0 && (n <= maxLaneBytes || o.wide && n <= maxWideBytes)
	place := l.place(rank)
	one := uint32(1) << place
	x := l.names[name]
	switch {
	case l.closed:
		return
	case x == nil && (!willing || len(l.names) >= maxLanes):
		return
	case x == nil:
		x = &lane{}
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

// assign returns where the lane of a name is, now that a rank is told of the end of its part, 0 for none. If the
// lane is a wide one, the rank must be shown the memory that comes along, which the caller releases. All
// ranks get the same answer for the same use: it is decided for the first that is told, when all have submitted. That one
// may submit its part of the next use before the others are told.
func (l *lanes) assign(rank int, name string, failed bool) (place int, _ []showing) {
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
		case x.bytes <= maxLaneBytes:
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
		place += wideLane
		shows = l.showsLocked(x, self)
	}
	if x.told |= one; x.told == all {
		x.told = 0
		x.shown.drop()
	}
	return place, shows
}

// met returns how many uses all ranks have come to, of all lanes that there ever were.
func (l *lanes) met() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.past
	for _, x := range l.names {
		n += l.metLocked(x)
	}
	return n
}

func (l *lanes) metLocked(x *lane) uint64 {
	if x.offset == 0 {
		return 0
	}
	least := uint64(math.MaxUint64)
	for i := range l.ranks {
		least = min(least, atomic.LoadUint64(word[uint64](l, x.offset+i*laneLine)))
	}
	return least / 2
}

// closeLocked takes the lane of a name away.
func (l *lanes) closeLocked(x *lane) {
	if !l.gone { // else nobody asks any more
		l.past += l.metLocked(x)
	}
	x.offset = 0
}

// takeLocked returns the offset of memory for a lane with buffers of n bytes, 0 if there is no more.
func (l *lanes) takeLocked(n int) int {
	need := len(l.ranks) * (laneLine + 2*strideOf(n))
	if need > int(l.region.Size())-l.used {
		return 0
	}
	at := l.used
	l.used += need
	return at
}

// strideOf returns the distance of buffers of n bytes.
func strideOf(n int) int { return (n + laneLine - 1) &^ (laneLine - 1) }

// leave says that a rank comes to no lane any more: those that wait for it there take the other way.
func (l *lanes) leave(rank int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if place := l.place(rank); place >= 0 {
		atomic.CompareAndSwapUint32(word[uint32](l, place*laneLine+laneLeft), 0, rankLeft)
	}
}

// end says that nothing is completed in a lane any more: a rank that comes later would otherwise find there what
// others were told has failed.
func (l *lanes) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.gone = true, true
	for place := range l.ranks {
		atomic.StoreUint32(word[uint32](l, place*laneLine+laneLeft), worldGone)
	}
}

func (l *lanes) asleep(rank int) bool {
	place := l.place(rank)
	return place >= 0 && atomic.LoadUint32(word[uint32](l, place*laneLine+laneAsleep)) != 0
}

// waiting lists the lanes in which some ranks wait for others. Since counts from the first call that saw it.
func (l *lanes) waiting(now time.Time) []collective.Stall {
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
			words[i] = atomic.LoadUint64(word[uint64](l, x.offset+i*laneLine))
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
				if done := atomic.LoadUint64(word[uint64](l, x.offset+i*laneLine+laneDone)); 2*done < most {
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

// setLanesLocked makes the lanes of a new world. Ranks of the last one do without from now on.
func (s *Server) setLanesLocked(w World) {
	s.dropLanesLocked()
	l, err := newLanes(w)
	if err != nil {
		s.cfg.Log.Warn("do without lanes", "err", err)
	}
	s.lanes = l
}

// dropLanesLocked ends the lanes; sessions keep the memory as long as they need it.
func (s *Server) dropLanesLocked() {
	if s.lanes == nil {
		return
	}
	for _, rank := range s.lanes.ranks {
		s.lanes.leave(rank)
	}
	s.lanes.dropParts()
	s.wakeLocked(s.lanes)
	s.lanes.region.Release()
	s.lanes = nil
}

// leaveLanes says that a rank comes to no lane any more.
func (s *Server) leaveLanes(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.lanes == nil {
		return
	}
	x.lanes.leave(x.rank)
	s.wakeLocked(x.lanes)
}

// wakeLocked wakes all that sleep in their lanes.
func (s *Server) wakeLocked(l *lanes) {
	for _, rank := range l.ranks {
		if l.asleep(rank) {
			s.wakeRankLocked(l, rank)
		}
	}
}

func (s *Server) wakeRankLocked(l *lanes, rank int) {
	for x := range s.sessions {
		if x.lanes == l && x.rank == rank {
			x.sendWake()
		}
	}
}

// showLanes hands a rank the memory, and counts it among those that may use it.
func (s *session) showLanes() error {
	if s.lanes == nil {
		return malformed("a wish for lanes, where there are none")
	}
	s.inLanes = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = appendLanes(s.scratch[:0], s.lanes.region.Size())
	s.sendLocked(s.scratch, s.lanes.region)
	return nil
}

// offer tells the lanes of a part that is about to be submitted.
func (s *session) offer(m *submit, o *operation, r *collective.Request) {
	switch {
	case s.lanes == nil:
	case r.Kind == collective.Join:
		s.server.leaveLanes(s) // the others must not wait for it
	case r.Kind == collective.Allreduce && r.Group == 0 && s.inLanes:
		o.lane = r.Name
		s.lanes.offer(s.rank, r.Name, len(r.In), offer{m.lane, m.wide, part{tenancy{m.in.region, o.in}, tenancy{m.out.region, o.out}}})
	}
}

func (s *session) sendWake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = appendPair(s.scratch[:0], typeWake, 0)
	s.sendLocked(s.scratch, nil)
}
