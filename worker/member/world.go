// Package member holds who is in the world of a daemon's job, as the daemon's components see it.
package member

import (
	"slices"

	"gorun/rendezvous/wire"
)

// World is the world of a job's ranks.
type World struct {
	Roster *wire.Roster // of the world, or of the next one while that is formed; nil before the first
	Epoch  uint32       // of the world that the ranks are in, 0 before the first
}

// Formed reports whether the ranks are in the world of the roster.
func (w World) Formed() bool { return w.Roster != nil && w.Epoch == w.Roster.Epoch }

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

// Ascending returns the ids of a roster's hosts in ascending order.
func Ascending(r *wire.Roster) []int {
	ids := IDs(r)
	slices.Sort(ids)
	return ids
}
