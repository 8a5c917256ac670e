package worker

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// Whether the other hosts are there: package liveness decides which of them to suspect, this file tells it what gossip and links
// notice, and reports to the launcher.

// reportPeers looks at the peers and reports what changed. It follows everything that may change it, and comes once per beat.
func (d *daemon) reportPeers() {
	seen := liveness.Seen{Unanswered: d.mesh.Awaited(), HungUp: d.mesh.HungUp(), Missing: d.missing(), Heard: func(peer int) time.Time {
		s, _ := d.mesh.Status(peer)
		return s.Heard
	}}
	gone := map[int]bool{}
	for _, peer := range seen.HungUp {
		if _, member := peerOf(d.roster, peer); member {
			gone[peer] = true
		}
	}
	d.cfg.LauncherLease.hungUp(gone)
	d.sendEvidence(d.alive.Look(time.Now(), seen))
}

func (d *daemon) sendEvidence(all []wire.Evidence) {
	for _, e := range all {
		e.Epoch = d.roster.Epoch
		d.out.Write(&e)
	}
}

// gossipHears notes that gossip hears a peer again.
func (d *daemon) gossipHears(peer int) {
	suspected := d.alive.State(time.Now(), peer) == liveness.Unreachable
	d.alive.GossipHeard(peer)
	if suspected {
		d.reportPeers()
	}
}

// missing returns the peers that the world which is being formed waits for, and those that a large world has not reached since it
// began. Another than an elastic job has no world to go on in without them.
func (d *daemon) missing() []int {
	if d.stopping || d.roster == nil || !d.job.Elastic {
		return nil
	}
	missing := map[int]bool{}
	for _, peer := range d.machine.Missing() {
		missing[peer] = true
	}
	linked := d.unlinked
	if d.machine.State() == epoch.Preparing {
		linked = append(slices.Clone(linked), d.needed...)
	}
	for _, peer := range linked {
		if s, _ := d.mesh.Status(peer); s.Streams == 0 {
			missing[peer] = true
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// lease returns how long a host may be silent.
func (d *daemon) lease() time.Duration {
	if d.roster != nil && d.roster.LeaseMS > 0 {
		return time.Duration(d.roster.LeaseMS) * time.Millisecond
	}
	return d.gossipLease()
}

// gossipLease returns how long gossip waits for a silent host.
func (d *daemon) gossipLease() time.Duration {
	if d.job.Lease > 0 {
		return d.job.Lease
	}
	return d.timing.Lease
}
