package slots

import (
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// Tensors is where a rank's source and target are.
type Tensors struct {
	In, Out Region
}

// Region is a rank's region, under the number that the rank knows it by.
type Region struct {
	Number uint32
	Memory *shm.Region // nil for none
}

// Showing is a region that a rank is about to be shown, with a reference.
type Showing struct {
	Region
	Place int // of the rank that owns it
}

type shownRegion struct {
	place  int
	number uint32
}

// tensorsByPlace are the tensors of the ranks of a slot. It has a reference to the regions that they are in.
type tensorsByPlace [codec.MaxSlotRanks]Tensors

// hold remembers where a rank's tensors are, until all ranks know how the use ended.
func (p *tensorsByPlace) hold(place int, of Tensors) {
	p.release(place)
	of.In.Memory.Retain()
	of.Out.Memory.Retain()
	p[place] = of
}

func (p *tensorsByPlace) release(place int) {
	for _, r := range []Region{p[place].In, p[place].Out} {
		if r.Memory != nil {
			r.Memory.Release()
		}
	}
	p[place] = Tensors{}
}

func (p *tensorsByPlace) drop() {
	for place := range p {
		p.release(place)
	}
}

// Drop releases all memory that is held to be shown. No slot is used after it.
func (t *Table) Drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	for _, x := range t.names {
		x.tensors.drop()
		x.shown.drop()
	}
}

// showsLocked returns what a rank must be shown before it may come to a wide slot. The caller releases it.
func (t *Table) showsLocked(x *slot, self int) []Showing {
	var shows []Showing
	for place := range t.ranks {
		if place == self {
			continue
		}
		for _, r := range []Region{x.shown[place].In, x.shown[place].Out} {
			key, one := shownRegion{place, r.Number}, uint32(1)<<self
			if r.Memory == nil || t.shown[key]&one != 0 {
				continue
			}
			t.shown[key] |= one
			r.Memory.Retain()
			shows = append(shows, Showing{r, place})
		}
	}
	return shows
}

// Hide forgets a region that its rank has freed, and returns the set of places whose ranks were shown it.
func (t *Table) Hide(place int, number uint32) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.names {
		for _, p := range []*tensorsByPlace{&x.tensors, &x.shown} {
			if p[place].In.Number == number || p[place].Out.Number == number {
				p.release(place) // a rank that is notified later is not shown it, and the owner will not come with it
			}
		}
	}
	key := shownRegion{place, number}
	shown := t.shown[key]
	delete(t.shown, key)
	return shown
}
