package launcher

import (
	"slices"
	"time"

	"gorun/rendezvous/liveness"
)

// limits returns the part of the view that decides how long a host may be silent.
func (s *state) limits() liveness.View {
	return liveness.View{Lease: s.lease(), Fixed: s.spec.Lease > 0}
}

// view returns what the launcher sees of its hosts.
func (s *state) view(now time.Time) liveness.View {
	v := liveness.View{Lease: s.lease(), Fixed: s.spec.Lease > 0, Stopping: s.stopping, Epoch: s.membership.epoch,
		Met: s.met, Joiner: s.joiners()}
	members := map[int]bool{}
	for _, id := range s.membership.hosts {
		members[id] = true
	}
	for _, h := range s.hosts {
		c := s.contact(now, h)
		c.Member = h.evicted == nil && (s.membership.hosts == nil || members[h.id])
		v.Contacts = append(v.Contacts, c)
	}
	return v
}

// contact returns what the launcher sees of a host. view adds whether it is a member of the world.
func (s *state) contact(now time.Time, h *host) liveness.Contact {
	c := liveness.Contact{ID: h.id, Heard: h.Heard.Last(now), Up: h.up, Ready: h.ready != nil, Adopted: h.adopted,
		Leaving: h.leaving, Ended: h.ended}
	if line, renewed := h.Line(); renewed {
		c.Line = line
		c.Line.Kept = true
	}
	return c
}

// hearsLately reports whether a host has not missed several signs of life in a row.
func (s *state) hearsLately(host int) bool {
	now := time.Now()
	return now.Sub(s.hosts[host].Heard.Last(now)) < 3*s.timing().HostInterval
}

// met reports whether the last worlds of two hosts were the same one, as at least one of them has reported.
func (s *state) met(a, b int) bool {
	of, other := s.hosts[a].world, s.hosts[b].world
	return of.Epoch > 0 && of.Epoch == other.Epoch || slices.Contains(of.Order, b) || slices.Contains(other.Order, a)
}

// joiners returns which hosts have not been in a world yet, so that they hold nothing of the ranks' state.
func (s *state) joiners() func(id int) bool {
	var known map[int]bool
	return func(id int) bool {
		if known == nil {
			known = map[int]bool{}
			for _, h := range s.hosts { // only one host reports who is in it
				for _, member := range h.world.Order {
					known[member] = true
				}
			}
		}
		return !known[id] && s.hosts[id].world.Epoch == 0
	}
}
