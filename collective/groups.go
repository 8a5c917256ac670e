package collective

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Groups come and go by operations of all ranks of the world; declare.go has those that only their members
// know of. These operations share one name, so that there is only one of them at a time and all hosts see them
// in the same order: counting is enough to give a group the same number everywhere, and no host has to assign
// numbers.
//
// A host that is done with AddGroup may be ready for operations of the group before another host has heard that
// all agree. That host lets the channel wait, messages in order, until it has the group too (early). There is at
// most one such group: the next one needs the late host.
//
// When a host carries out RemoveGroup it has heard everything that any host declared about the group before: a rank
// that has submitted the removal can submit nothing more in the group, unless the removal fails. An operation that all
// ranks submitted before they removed the group has started by then, and ends as usual; one that has not started never
// can, and fails. Contributions that follow one that has started come later, on each host when it has ended there, and
// all of them come: a group stays as long as there are such.

// groupsName is the name of the operations on groups.
const groupsName = "process sets"

// checkGroup checks a request for a group by itself. g is the world.
func (r *Request) checkGroup(g *group) *Error {
	if g.id != 0 {
		return refuse("%s: all ranks of the world take part, not only those of group %d", r.Kind, g.id)
	}
	if r.Kind == RemoveGroup {
		r.Shape = nil
		return nil
	}
	r.Root, r.Shape = 0, slices.Clone(r.Shape)
	slices.Sort(r.Shape)
	return checkMembers(g, r.Shape)
}

// checkMembers checks the ranks of a new group, in ascending order. g is the world.
func checkMembers(g *group, ranks []int) *Error {
	if len(ranks) == 0 {
		return refuse("%s: there are no ranks in it", AddGroup)
	}
	for i, rank := range ranks {
		if i > 0 && rank == ranks[i-1] {
			return refuse("%s: rank %d is there twice", AddGroup, rank)
		}
		if _, ok := g.find(rank); !ok {
			return refuse("%s: there is no rank %d in a world of %d", AddGroup, rank, len(g.ranks))
		}
	}
	return nil
}

// directory has the groups of a world.
type directory struct {
	byID     map[uint32]*group // with ranks on this host
	sets     map[uint32][]int  // ranks of all groups
	next     uint32            // number of the next group that all ranks make
	declared int               // groups that only their members know of
}

// newDirectory returns the directory of a world that has no groups but all its ranks.
func newDirectory(w World) *directory {
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

// early reports whether a control message is about the group that this host is about to have, or comes after
// a pause that is not over here.
func (e *Engine) early(p []byte) bool {
	if len(p) > 0 && p[0] == msgMark {
		m, err := readMark(p)
		return err == nil && m.goes && e.paused.number == m.number
	}
	return len(p) >= readyHead && p[0] == msgReady && binary.LittleEndian.Uint32(p[4:]) == e.groups.next
}

// addGroup makes a group that all hosts agreed on, and hears what peers declared in it before.
func (e *Engine) addGroup(epoch uint32, ranks []int) uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil || e.world.Epoch != epoch {
		return 0 // no rank waits for it any more
	}
	id := e.groups.add(newGroup(e.world, e.groups.next, ranks), ranks)
	e.listenAll()
	return id
}

// listenAll hears what waited in the channels and whose time has come. mu is held, and released in between.
func (e *Engine) listenAll() {
	peers := make([]int, 0, len(e.channels))
	for peer := range e.channels {
		peers = append(peers, peer)
	}
	for _, peer := range peers {
		if c := e.channels[peer]; c != nil {
			p, ok := e.take(c)
			e.listen(peer, c, p, ok)
		}
	}
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

// drop removes a group that all hosts agreed to remove.
func (t *readiness) drop(id uint32) {
	delete(t.groups.sets, id)
	if g := t.groups.byID[id]; g != nil {
		g.removed = true
		t.retire(g)
	}
}

// retire ends what can never start in a group that was removed, in the order of names, and forgets the group once
// nothing more can.
func (t *readiness) retire(g *group) {
	var failed []*op
	awaited := slices.ContainsFunc(g.pending, func(names map[string]bool) bool { return len(names) > 0 })
	for id, o := range t.open {
		switch {
		case o.group != g || o.voted == len(o.votes):
		case o.promised():
			awaited = true
		default:
			failed = append(failed, o)
			delete(t.open, id)
		}
	}
	if !awaited {
		delete(t.groups.byID, g.id)
	}
	slices.SortFunc(failed, func(a, b *op) int { return strings.Compare(a.name, b.name) })
	for _, o := range failed {
		t.report(event{op: o, err: &Error{Code: CodeInvalid,
			Text: fmt.Sprintf("%s %q: process set %d was removed before all its ranks submitted their parts",
				o.announced(), o.name, g.id)}})
	}
}

// removes reports whether a local rank has submitted that a group shall be removed, which is not over.
func (t *readiness) removes(rank int, id uint32) bool {
	o := t.open[hash(0, groupsName)]
	if o == nil {
		return false
	}
	i := slices.Index(o.group.local(), rank)
	return i >= 0 && o.own.have[i] && o.own.reqs[i].Kind == RemoveGroup && o.own.reqs[i].Root == int(id)
}

// promised reports whether all ranks submit their contributions whatever becomes of the group.
func (o *op) promised() bool {
	for i := range o.own.reqs {
		if o.own.have[i] && o.own.reqs[i].Follows || o.group.pending[i][o.name] {
			return true
		}
	}
	return false
}

// over reports whether a group was removed, and no contribution of a local rank is pending under that name.
func (g *group) over(name []byte) bool {
	return g.removed && !slices.ContainsFunc(g.pending, func(names map[string]bool) bool { return names[string(name)] })
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
