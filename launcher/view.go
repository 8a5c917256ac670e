package launcher

import (
	"slices"
	"time"

	"gorun/rendezvous/liveness"
)

// leaseOf returns how long a host may be silent: longer while it moves.
func (j *job) leaseOf(now time.Time, h *host) time.Duration {
	return j.alive.Lease(now, h.id, j.limits())
}

// limits returns the part of the view that decides how long a host may be silent.
func (j *job) limits() liveness.View { return liveness.View{Lease: j.lease(), Fixed: j.spec.Lease > 0} }

// view returns what the launcher sees of its hosts.
func (j *job) view(now time.Time) liveness.View {
	v := liveness.View{Lease: j.lease(), Fixed: j.spec.Lease > 0, Stopping: j.stopping, Epoch: j.membership.epoch, Met: j.met, Joiner: j.joiners()}
	members := map[int]bool{}
	for _, id := range j.membership.hosts {
		members[id] = true
	}
	for _, h := range j.hosts {
		c := j.contact(now, h)
		c.Member = h.evicted == nil && (j.membership.hosts == nil || members[h.id])
		v.Contacts = append(v.Contacts, c)
	}
	return v
}

// contact returns what the launcher sees of a host. view adds whether it is a member of the world.
func (j *job) contact(now time.Time, h *host) liveness.Contact {
	c := liveness.Contact{ID: h.id, Heard: h.Heard.Last(now), Up: h.up, Ready: h.ready != nil, Adopted: h.adopted, Leaving: h.leaving, Ended: h.ended}
	if line, renewed := h.Line(); renewed {
		c.Line = line
		c.Line.Kept = true
	}
	return c
}

// met reports whether the last worlds of two hosts were the same one, as at least one of them has reported.
func (j *job) met(a, b int) bool {
	of, other := j.hosts[a].world, j.hosts[b].world
	return of.Epoch > 0 && of.Epoch == other.Epoch || slices.Contains(of.Order, b) || slices.Contains(other.Order, a)
}

// joiners returns which hosts have not been in a world yet, so that they hold nothing of the ranks' state.
func (j *job) joiners() func(id int) bool {
	var known map[int]bool
	return func(id int) bool {
		if known == nil {
			known = map[int]bool{}
			for _, h := range j.hosts { // only one host reports who is in it
				for _, member := range h.world.Order {
					known[member] = true
				}
			}
		}
		return !known[id] && j.hosts[id].world.Epoch == 0
	}
}
