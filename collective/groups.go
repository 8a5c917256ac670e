package collective

import (
	"fmt"
	"slices"
	"strings"
)

// Groups come and go by operations of all ranks of the world; groups that only their members know of are in
// declare.go. These operations share one name, so that there is only one of them at a time and all hosts see them in
// the same order: counting is enough to give a group the same number everywhere, and no host has to assign numbers.
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
		case o.group != g || o.full():
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
