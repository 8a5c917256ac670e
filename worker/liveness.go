package worker

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/worker/member"
)

// Whether the other hosts are there: package liveness decides which of them to suspect, this file tells it what gossip and links
// notice, and reports to the launcher.

// reportPeers looks at the peers and reports what changed. It follows everything that may change it, and comes once per beat.
func (d *daemon) reportPeers() {
	seen := liveness.Seen{Unanswered: d.net.Mesh.Awaited(), HungUp: d.net.Mesh.HungUp(), Missing: d.missing(), Heard: func(peer int) time.Time {
		s, _ := d.net.Mesh.Status(peer)
		return s.Heard
	}}
	gone := map[int]bool{}
	for _, peer := range seen.HungUp {
		if _, ok := member.Peer(d.member.roster, peer); ok {
			gone[peer] = true
		}
	}
	d.cfg.LauncherLease.hungUp(gone)
	d.sendEvidence(d.member.alive.Look(time.Now(), seen))
}

func (d *daemon) sendEvidence(all []wire.Evidence) {
	for _, e := range all {
		e.Epoch = d.member.roster.Epoch
		d.out.Write(&e)
	}
}

// gossipHears notes that gossip hears a peer again.
func (d *daemon) gossipHears(peer int) {
	suspected := d.member.alive.State(time.Now(), peer) == liveness.Unreachable
	d.member.alive.GossipHeard(peer)
	if suspected {
		d.reportPeers()
	}
}

// missing returns the peers that the world which is being formed waits for, and those that a large world has not reached since it
// began. Another than an elastic job has no world to go on in without them.
func (d *daemon) missing() []int {
	if d.stopping || d.member.roster == nil || !d.job.Elastic {
		return nil
	}
	missing := map[int]bool{}
	for _, peer := range d.member.machine.Missing() {
		missing[peer] = true
	}
	linked := d.member.unlinked
	if d.member.machine.State() == epoch.Preparing {
		linked = append(slices.Clone(linked), d.member.needed...)
	}
	for _, peer := range linked {
		if s, _ := d.net.Mesh.Status(peer); s.Streams == 0 {
			missing[peer] = true
		}
	}
	return slices.Sorted(maps.Keys(missing))
}
