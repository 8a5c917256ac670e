package worker

import (
	"cmp"
	"context"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/worker/member"
	"gorun/worker/migrate/vmtools"
)

// Whether the other hosts are there: package liveness decides which of them to suspect, this file tells it what gossip and links
// notice, and reports to the launcher.

// peerWatch is what this host notices of its peers, and of its launcher on their behalf.
type peerWatch struct {
	*liveness.Peers
	timing liveness.Timing
	lease  time.Duration // how long gossip waits for a silent host
	hears  *wire.Hears   // this host's last report whether it hears the launcher; nil for none, which is yes
}

func newPeerWatch(job *wire.Job) *peerWatch {
	w := &peerWatch{timing: liveness.Default().Scaled(job.TimeScale)}
	w.lease = cmp.Or(job.Lease, w.timing.Lease)
	w.Peers = liveness.NewPeers(w.timing, w.lease, job.Lease > 0)
	return w
}

// reportPeers looks at the peers and reports what changed. It follows everything that may change it, and comes once per beat.
func (d *daemon) reportPeers() {
	seen := liveness.Seen{Unanswered: d.net.Links().Awaited(), HungUp: d.net.Links().HungUp(), Missing: d.member.Missing(), Heard: func(peer int) time.Time {
		s, _ := d.net.Links().Status(peer)
		return s.Heard
	}}
	gone := map[int]bool{}
	for _, peer := range seen.HungUp {
		if _, ok := member.Peer(d.member.Roster(), peer); ok {
			gone[peer] = true
		}
	}
	d.cfg.LauncherLease.hungUp(gone)
	d.sendEvidence(d.peers.Look(time.Now(), seen))
}

func (d *daemon) sendEvidence(all []wire.Evidence) {
	for _, e := range all {
		e.Epoch = d.member.Roster().Epoch
		d.out.Write(&e)
	}
}

// gossipHears notes that gossip hears a peer again.
func (d *daemon) gossipHears(peer int) {
	suspected := d.peers.State(time.Now(), peer) == liveness.Unreachable
	d.peers.GossipHeard(peer)
	if suspected {
		d.reportPeers()
	}
}

// live reports to the launcher that this host is there. It is not the loop that does, which must not wait for a launcher
// that does not read.
func (d *daemon) live(ctx context.Context) {
	tick := time.NewTicker(d.peers.timing.HostInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.out.Write(&wire.Alive{})
		case <-ctx.Done():
			return
		}
	}
}

// beat looks whether this host was paused, and which peers are suspect by now.
func (d *daemon) beat(ctx context.Context) {
	if d.moves.Beat(ctx, vmtools.SinceBoot()) {
		d.peers.Paused(time.Now())
	}
	d.reportPeers()
}
