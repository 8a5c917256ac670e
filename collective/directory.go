package collective

import "slices"

// declared is set in the numbers of groups that their members declare.
const declared = 1 << 30

// maxDeclared bounds what ranks and peers can have a host remember.
const maxDeclared = 1 << 12

// directory has the groups of a world.
type directory struct {
	byID     map[uint32]*group // with ranks on this host
	sets     map[uint32][]int  // ranks of all groups
	next     uint32            // number of the next group that all ranks make
	declared int               // groups that only their members know of
}

// newDirectory returns the directory of a world that has no groups but all its ranks.
func newDirectory(w EngineWorld) *directory {
	d := &directory{byID: map[uint32]*group{}, sets: map[uint32][]int{}, next: 1}
	if g := newGroup(w, 0, nil); g != nil {
		d.byID[0], d.sets[0] = g, g.ranks
	}
	return d
}

// check refuses to add a group that is there, and to remove one that is not.
func (d *directory) check(r *Request) *Error {
	switch r.Kind {
	case AddGroup:
		for id, ranks := range d.sets {
			if id < declared && slices.Equal(ranks, r.Shape) {
				return refuse("%s: %s are process set %d already", r.Kind, listRanks(ranks), id)
			}
		}
	case RemoveGroup:
		if r.Root <= 0 || r.Root >= declared || d.sets[uint32(r.Root)] == nil {
			return refuse("%s: there is no process set %d that could be removed", r.Kind, r.Root)
		}
	}
	return nil
}

// add enters the next group; g is nil if this host has no part in it.
func (d *directory) add(g *group, ranks []int) uint32 {
	id := d.next
	d.next++
	d.sets[id] = ranks
	if g == nil {
		return id
	}
	d.enter(g) // a rank that left after its host agreed to the group is still in it
	return id
}

// enter adds a group, and notes which of its ranks have left.
func (d *directory) enter(g *group) {
	d.byID[g.id] = g
	for _, gone := range d.byID[0].gone {
		if at, ok := g.find(gone.rank); ok {
			g.gone = append(g.gone, departed{gone.rank, at.pos})
		}
	}
}

// pend notes the names under which a rank still submits in the group that it removes.
func (d *directory) pend(id uint32, rank int, names []string) {
	g := d.byID[id]
	if g == nil {
		return
	}
	if at, ok := g.find(rank); ok && at.pos == g.self {
		g.pend(at.index, names)
	}
}

// find returns a group with ranks on this host, nil if there is none.
func (d *directory) find(id uint32) *group {
	g, world := d.byID[id], d.byID[0]
	if g != nil || id&pairs == 0 || world == nil {
		return g
	}
	ranks := []int{int(id >> pairBits & (1<<pairBits - 1)), int(id & (1<<pairBits - 1))}
	for _, r := range ranks {
		if _, ok := world.find(r); !ok {
			return nil
		}
	}
	if ranks[0] >= ranks[1] {
		return nil
	}
	g = newGroup(EngineWorld{Hosts: world.hosts, Self: world.self}, id, ranks)
	if g == nil {
		return nil
	}
	d.enter(g)
	return g
}

// know makes sure that there is a group of that number and those ranks, some of them on this host.
func (d *directory) know(id uint32, ranks []int) *Error {
	if known := d.sets[id]; known != nil {
		if !slices.Equal(known, ranks) {
			return refuse("%s: %s cannot have number %d, %s have it", AddGroup, listRanks(ranks), id, listRanks(known))
		}
		return nil
	}
	if d.declared == maxDeclared {
		return refuse("%s: there are %d already that only their members know of, which is the limit", AddGroup, maxDeclared)
	}
	world := d.byID[0]
	g := newGroup(EngineWorld{Hosts: world.hosts, Self: world.self}, id, ranks)
	if g == nil {
		return refuse("%s: no member is on this host", AddGroup)
	}
	d.declared++
	d.sets[id] = ranks
	d.enter(g)
	return nil
}
