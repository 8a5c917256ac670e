package launcher

import (
	"fmt"
	"time"

	"gorun/rendezvous/wire"
)

// A host whose connection has ended, and that cannot be reached, may be cut off or dead. It is dead if it has said so: its
// kernel ends the connections of processes that are gone, with the launcher or with other hosts. Otherwise it has the time that
// any silent host has.

// mending is how long a host that has ended its connections may be silent, for a process of ssh may die for itself, and
// connections may be reset on their way.
const mending = 1500 * time.Millisecond

// away is how a host cannot be reached.
type away struct {
	since  time.Time // when the connection ended; zero if there is one
	silent time.Time // when the host was last known to be there since; zero while it answers
	hungUp bool      // the host has ended the connection
}

// hungUp takes what a host says of its connections with a peer.
func (j *job) hungUp(h *host, m *wire.HungUp) {
	if m.Peer < 0 || m.Peer >= len(j.hosts) {
		return
	}
	if m.Back {
		delete(h.parted, m.Peer)
		return
	}
	h.parted[m.Peer] = true
}

// search gives up the hosts that cannot be reached, if there is more to it than that, or it lasts too long.
func (j *job) search(now time.Time) {
	for _, h := range j.hosts {
		d := h.daemon.Load()
		if d == nil || d.Away == nil || j.ended[h.id] {
			continue
		}
		a := d.Away()
		if a.since.IsZero() {
			continue
		}
		j.form() // if that is for later: in a world hosts tell each other whether the launcher lives, and who hung up
		if j.silences.quiet(now, a.since) < mending {
			continue
		}
		patience := j.lease()
		if h.moves && j.spec.Lease == 0 {
			patience = max(patience, vgpuLease)
		}
		// Of a host that does not run anything yet, or any more, there is nothing to lose.
		idle := j.ready[h.id] == nil || h.leaving || j.stopping
		silent := !a.silent.IsZero() && j.silences.quiet(now, a.silent) >= mending
		if silent && (idle || a.hungUp || j.partedFrom(h)) || j.silences.quiet(now, h.heard.last(now)) >= patience {
			why := fmt.Sprintf("cannot be reached since %s", a.since.Format(time.TimeOnly))
			h.unreachable.Store(&why)
			h.hangUp() // its conversation reports the loss
		}
	}
}

// partedFrom is true if a host that is left says that this one has ended their connections.
func (j *job) partedFrom(h *host) bool {
	for _, other := range j.hosts {
		if other.parted[h.id] && !j.ended[other.id] {
			return true
		}
	}
	return false
}
