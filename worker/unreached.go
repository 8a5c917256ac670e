package worker

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
)

// unreached are the peers without whom a world cannot begin: they do not reach this host, or it does not reach them. Which of the
// two is at fault neither knows, so the launcher hears who misses whom, and decides. This is for elastic jobs: another one has no
// world to go on in.
type unreached struct {
	since map[int]time.Time // when each was missed first
	told  map[int]bool      // those that the launcher has heard of
	given map[int]bool      // those that were missed for so long that they are taken for lost
}

// unreachedAfter is when it is worth a line that a world waits for a peer.
const unreachedAfter = 4 * time.Second

func newUnreached() *unreached {
	return &unreached{since: map[int]time.Time{}, told: map[int]bool{}, given: map[int]bool{}}
}

// look takes who is missed now. It returns of whom users should hear, who is taken for lost, and who is so no more.
func (u *unreached) look(now time.Time, lease time.Duration, missed []int) (late, lost, back []int) {
	for peer := range u.since {
		if !slices.Contains(missed, peer) {
			delete(u.since, peer)
			delete(u.told, peer)
		}
	}
	for peer := range u.given {
		if !slices.Contains(missed, peer) {
			delete(u.given, peer)
			back = append(back, peer)
		}
	}
	for _, peer := range missed {
		if _, known := u.since[peer]; !known {
			u.since[peer] = now
		}
		waited := now.Sub(u.since[peer])
		if waited >= unreachedAfter && !u.told[peer] {
			u.told[peer] = true
			late = append(late, peer)
		}
		if waited >= overLinks(lease) && !u.given[peer] {
			u.given[peer] = true
			lost = append(lost, peer)
		}
	}
	slices.Sort(back)
	return late, lost, back
}

// begin says that another world is formed, in which all count anew, and returns who was taken for lost.
func (u *unreached) begin() (back []int) {
	back = slices.Sorted(maps.Keys(u.given))
	clear(u.since)
	clear(u.told)
	clear(u.given)
	return back
}

// stood says that this host stood still until now: those that it missed may have come meanwhile.
func (u *unreached) stood(now time.Time) {
	for peer := range u.since {
		u.since[peer] = now
	}
}

// missed returns the peers without whom the world that is being formed cannot begin, and those that a large world has not reached
// since it began.
func (d *daemon) missed() []int {
	if d.stopping || d.roster == nil || !d.job.Elastic {
		return nil
	}
	missed := map[int]bool{}
	for _, peer := range d.machine.Missing() {
		missed[peer] = true
	}
	linked := d.unlinked
	if d.machine.State() == epoch.Preparing {
		linked = append(slices.Clone(linked), d.needed...)
	}
	for _, peer := range linked {
		if s, _ := d.mesh.Status(peer); s.Streams == 0 {
			missed[peer] = true
		}
	}
	return slices.Sorted(maps.Keys(missed))
}

// reportUnreached tells the launcher for whom a world waits, and who is missed for too long.
func (d *daemon) reportUnreached() {
	now := time.Now()
	late, lost, back := d.unreached.look(now, d.lease(), d.missed())
	for _, peer := range late {
		d.out.Write(&wire.Awaits{Epoch: d.roster.Epoch, Peer: peer, ForMS: now.Sub(d.unreached.since[peer]).Milliseconds()})
	}
	for _, peer := range lost {
		d.sayUnreached(peer)
	}
	for _, peer := range back {
		d.heardAgain(peer)
	}
}

// sayUnreached tells the launcher that a peer is missed for too long.
func (d *daemon) sayUnreached(peer int) {
	d.out.Write(&wire.Silent{Peer: peer, Text: fmt.Sprintf("%s has not reached it for %v: check firewalls between hosts", d.self.Name, overLinks(d.lease()))})
}
