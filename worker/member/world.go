// Package member knows who is in the world of a daemon's job, and forms that world with the other daemons.
//
// The launcher sends rosters (roster.go). The hosts of a roster meet by gossip, and one of them, the coordinator,
// proposes a world: package epoch decides when it begins, and Membership acts on that (form.go). Before a world
// begins, its hosts make the links that it needs (links.go). View, and the functions on rosters, are what the
// daemon's other components see of it.
package member

import (
	"fmt"
	"slices"

	"gorun/rendezvous/wire"
)

// View is how components see the world of the ranks.
type View struct {
	Roster *wire.Roster // of the world, or of the next one while that is formed; nil before the first
	Epoch  uint32       // of the world that the ranks are in, 0 before the first
}

// Formed reports whether the ranks are in the world of the roster.
func (w View) Formed() bool { return w.Roster != nil && w.Epoch == w.Roster.Epoch }

// Peer finds a daemon in a roster.
func Peer(r *wire.Roster, id int) (wire.Peer, bool) {
	if r != nil {
		for _, p := range r.Peers {
			if p.ID == id {
				return p, true
			}
		}
	}
	return wire.Peer{}, false
}

// IDs returns the ids of a roster's hosts in its order.
func IDs(r *wire.Roster) (ids []int) {
	for _, p := range r.Peers {
		ids = append(ids, p.ID)
	}
	return ids
}

// Check makes sure that a world can be built on a roster, for the host of an id and a name: the launcher's numbers
// index our arrays.
func Check(r *wire.Roster, host int, name string) error {
	if r.Size < 1 || r.Size > 1<<20 || len(r.Peers) == 0 {
		return fmt.Errorf("check roster of epoch %d: %d ranks on %d hosts", r.Epoch, r.Size, len(r.Peers))
	}
	seen := make([]bool, r.Size)
	for _, p := range r.Peers {
		for _, rank := range p.Ranks {
			if rank < 0 || rank >= len(seen) || seen[rank] {
				return fmt.Errorf("check roster of epoch %d: rank %d of host %s", r.Epoch, rank, p.Name)
			}
			seen[rank] = true
		}
	}
	self, _ := Peer(r, host) // not there: it has no ranks
	if len(self.Ranks) != len(r.Ranks) {
		return fmt.Errorf("check roster of epoch %d: host %s has %d ranks there and %d processes", r.Epoch, name,
			len(self.Ranks), len(r.Ranks))
	}
	processes := map[int]bool{}
	for _, p := range r.Ranks {
		if p.Process < 0 || processes[p.Process] || p.Slot < 0 || !slices.Contains(self.Ranks, p.Rank) {
			return fmt.Errorf("check roster of epoch %d: process %d as rank %d of host %s", r.Epoch, p.Process, p.Rank, name)
		}
		processes[p.Process] = true
	}
	for _, p := range r.Spares {
		if p.Process < 0 || processes[p.Process] || p.Slot < 0 || p.LocalRank < 0 {
			return fmt.Errorf("check roster of epoch %d: spare process %d of host %s", r.Epoch, p.Process, name)
		}
		processes[p.Process] = true
	}
	return nil
}
