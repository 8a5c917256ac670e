package session

import (
	"gorun/worker/shm"
)

// Wide slots: the ranks of a host reduce larger tensors where they lie, each its slice of all of them, in memory that
// they show each other. The limit is that of the machine's memory: every byte is read once and written once.

const (
	// Below this, two meetings cost more than reading every tensor whole, which is what ranks do in a plain slot.
	minWideBytes = 2 << 10
	// Above this the hand-overs to and from the daemon no longer show; where ranks outnumber CPUs they do not long before.
	maxWideBytes  = 32 << 20
	maxCrowdBytes = 4 << 20

	wideSlot = 1 // added to the place of a slot: it is a wide one

	// In a rank's line of a wide slot, after its word.
	wideIn        = 16
	wideOut       = 20
	wideInOffset  = 24
	wideOutOffset = 32
)

// part is where a rank's tensors are.
type part struct {
	in, out tenancy
}

// tenancy is a region that is held as long as somebody may have to be shown it.
type tenancy struct {
	number uint32
	region *shm.Region // nil for none
}

// showing is a region that a rank is about to be shown, with a reference.
type showing struct {
	tenancy
	place int // of whose it is
}

type shownRegion struct {
	place  int
	number uint32
}

// parts are those of the ranks of a slot, by their place.
type parts [maxSlotRanks]part

// hold remembers where a rank's tensors are, until everybody knows how the use ended.
func (p *parts) hold(place int, of part) {
	p.let(place)
	of.in.region.Retain()
	of.out.region.Retain()
	p[place] = of
}

func (p *parts) let(place int) {
	for _, t := range []tenancy{p[place].in, p[place].out} {
		if t.region != nil {
			t.region.Release()
		}
	}
	p[place] = part{}
}

func (p *parts) drop() {
	for place := range p {
		p.let(place)
	}
}

// dropParts lets go of all memory that was held for ranks to be shown.
func (l *slots) dropParts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	for _, x := range l.names {
		x.parts.drop()
		x.shown.drop()
	}
}

// showsLocked returns what a rank must be shown before it may come to a wide slot. The caller releases it.
func (l *slots) showsLocked(x *slot, self int) []showing {
	var shows []showing
	for place := range l.ranks {
		if place == self {
			continue
		}
		for _, t := range []tenancy{x.shown[place].in, x.shown[place].out} {
			key, one := shownRegion{place, t.number}, uint32(1)<<self
			if t.region == nil || l.shown[key]&one != 0 {
				continue
			}
			l.shown[key] |= one
			t.region.Retain()
			shows = append(shows, showing{t, place})
		}
	}
	return shows
}

// hide forgets a region that its rank has freed, and returns the places of those that were shown it.
func (l *slots) hide(place int, number uint32) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.names {
		for _, p := range []*parts{&x.parts, &x.shown} {
			if p[place].in.number == number || p[place].out.number == number {
				p.let(place) // who has not been told yet finds it nowhere, and its rank will not come with it
			}
		}
	}
	key := shownRegion{place, number}
	shown := l.shown[key]
	delete(l.shown, key)
	return shown
}

// hideRegion tells other ranks of this host that this one has freed a region.
func (s *session) hideRegion(number uint32) {
	if s.slots == nil {
		return
	}
	place := s.slots.place(s.rank)
	shown := s.slots.hide(place, number)
	if shown == 0 {
		return
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for x := range s.server.sessions {
		if x.slots == s.slots && shown>>x.slots.place(x.rank)&1 != 0 {
			x.mu.Lock()
			x.scratch = appendHide(x.scratch[:0], place, number)
			x.sendLocked(x.scratch, nil)
			x.mu.Unlock()
		}
	}
}
