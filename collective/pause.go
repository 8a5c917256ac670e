package collective

import (
	"fmt"
	"slices"
	"time"
)

// A pause stops the operations between hosts at one boundary, the same on all of them: what all hosts announced
// before it finishes everywhere, and nothing else begins anywhere. Ranks notice nothing but that it takes longer:
// their contributions are taken as ever, and what is complete on this host waits to be announced.
//
// A host that stops notifies all others, in the order of its announcements (mark). So a host that has heard the marks
// of all others knows of everything that can begin, and is quiet when the link holds nothing of it. When all hosts are
// quiet no segment of any operation is under way, and the ring may change: what some hosts announced before stays
// announced, and what they will announce is put in the new order of positions.
//
// Hosts resume at different times, and each announces that in the same order too. Whatever a host announces afterwards
// waits in the channel until this host has resumed. So no operation begins here in the old order if its last
// announcement was made in the new one. Segments of such an operation may come earlier; like all segments that overtake
// an announcement, they are kept until it starts.

// Pause announces nothing any more until Resume. quiet is called once, maybe before Pause returns and on any
// goroutine, when all hosts of the world have paused with that number, which is not 0, and nothing is under way.
// It must not block.
func (e *Engine) Pause(number uint32, quiet func()) {
	e.mu.Lock()
	if e.stopped != nil || number == 0 {
		e.mu.Unlock()
		return
	}
	e.paused = paused{number: number, quiet: quiet}
	e.negotiation.pause(true)
	e.announce(shortMessage(msgMark, 0, int(number)))
	e.settle()
}

// Resume ends a pause. order, unless nil, is the new order of the hosts, by id.
// All hosts must be quiet, and all must get the same arguments.
func (e *Engine) Resume(number uint32, order []int) error {
	e.mu.Lock()
	if e.stopped != nil || e.paused.number != number {
		e.mu.Unlock()
		return nil // the world has ended, or there is nothing to resume
	}
	if order != nil {
		if err := e.reorder(order); err != nil {
			e.mu.Unlock()
			return err
		}
	}
	leaving, epoch := e.paused.leaving, e.world.Epoch
	e.paused = paused{}
	for _, o := range e.ops.open {
		o.since = time.Time{} // no rank was late meanwhile
	}
	e.announce(shortMessage(msgMark, 1, int(number)))
	e.negotiation.pause(false)
	e.settle()
	for _, rank := range leaving {
		e.Leave(epoch, rank)
	}
	e.mu.Lock()
	e.listenAll()
	e.mu.Unlock()
	return nil
}

// reorder puts the hosts in another order, and with them everything that goes by their positions. mu is held. Only
// groups between hosts change, and no operation of theirs is under way; operations on this host alone may be.
func (e *Engine) reorder(order []int) error {
	w := e.world
	w.Hosts, w.Self = nil, -1
	for _, id := range order {
		at := slices.IndexFunc(e.world.Hosts, func(h HostRanks) bool { return h.ID == id })
		if at < 0 || slices.ContainsFunc(w.Hosts, func(h HostRanks) bool { return h.ID == id }) {
			return fmt.Errorf("reorder world of epoch %d: %v is no order of its hosts", w.Epoch, order)
		}
		if at == e.world.Self {
			w.Self = len(w.Hosts)
		}
		w.Hosts = append(w.Hosts, e.world.Hosts[at])
	}
	switch {
	case len(w.Hosts) != len(e.world.Hosts):
		return fmt.Errorf("reorder world of epoch %d: %v is no order of its hosts", w.Epoch, order)
	case e.ops.live > 0:
		return fmt.Errorf("reorder world of epoch %d: operations are under way", w.Epoch)
	}
	e.world = w
	former := map[*group][]int{} // the positions that the hosts of a group had
	for id, g := range e.groups.byID {
		if len(g.hosts) > 1 {
			former[g] = g.reorder(newGroup(w, id, g.ranks))
		}
	}
	for _, o := range e.ops.open {
		if was := former[o.group]; was != nil {
			o.permute(was)
		}
	}
	return nil
}

// reorder takes over the positions of the same group in another order, and returns the ones that its hosts had.
func (g *group) reorder(as *group) []int {
	was := make([]int, len(as.hosts))
	for pos, h := range as.hosts {
		was[pos] = g.position(h.ID)
	}
	for i := range g.gone {
		g.gone[i].pos = slices.Index(was, g.gone[i].pos)
	}
	g.closed = permute(g.closed, was)
	g.hosts, g.self, g.seats, g.owned = as.hosts, as.self, as.seats, as.owned
	return was
}
