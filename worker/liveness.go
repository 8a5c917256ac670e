package worker

import (
	"context"
	"errors"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/worker/member"
	"gorun/worker/migrate/vmtools"
)

// Whether the other hosts are there, and the launcher: package liveness decides, this file passes on what gossip and
// links notice, and sends reports.

// reportPeers looks at the peers and reports what changed to the launcher. It runs once per beat, and after each event
// that may change what it sees.
func (d *daemon) reportPeers() {
	links := d.net.Links()
	heard := func(peer int) time.Time {
		s, _ := links.Status(peer)
		return s.Heard
	}
	seen := liveness.Seen{Unanswered: links.Awaited(), HungUp: links.HungUp(), Missing: d.member.Missing(), Heard: heard}
	gone := map[int]bool{}
	for _, peer := range seen.HungUp {
		if _, ok := member.Peer(d.member.Roster(), peer); ok {
			gone[peer] = true
		}
	}
	d.cfg.LauncherLease.note(func(s *liveness.LauncherLease) { s.HungUp(gone) })
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

// live reports to the launcher that this host is there. It has its own goroutine, as the loop must not wait for a
// launcher that does not read.
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

// beat checks whether this host was paused, and which peers are suspect by now.
func (d *daemon) beat(ctx context.Context) {
	d.ranks.Monitor.Beat()
	if d.moves.Beat(ctx, vmtools.SinceBoot()) {
		d.peers.Paused(time.Now())
	}
	d.reportPeers()
}

// lost reports to the launcher that the link to a peer has failed and cannot resume.
func (d *daemon) lost(peer int, err error) {
	if _, ok := member.Peer(d.member.Roster(), peer); !ok {
		return // it is no longer in the world
	}
	if errors.Is(err, link.ErrReopened) {
		return // the peer has a later roster, which will reach this host too
	}
	d.out.Write(&wire.Failed{Step: "run", Text: err.Error(), Code: 255, Peer: peer})
}

// watchLauncher reports to the peers when this host stops hearing its launcher, and when it hears the launcher again.
func (d *daemon) watchLauncher(ctx context.Context) {
	l := d.cfg.LauncherLease
	for stamp := uint64(1); ; stamp++ {
		select {
		case <-l.changed:
		case <-ctx.Done():
			return
		}
		m := &wire.Hears{Host: d.job.HostID, Stamp: stamp, Launcher: !l.deaf()}
		d.post(ctx, func() {
			d.peers.hears = m
			for _, p := range d.member.Others() {
				d.net.Notify(p.ID, m)
			}
			if !m.Launcher {
				d.member.MeetOthers(ctx) // peers that it has no link to may hear the launcher
			}
		})
	}
}

// repeatDeaf repeats to a peer that this host has just met that the host does not hear its launcher.
func (d *daemon) repeatDeaf(peer int) {
	if d.peers.hears != nil && !d.peers.hears.Launcher {
		d.net.Notify(peer, d.peers.hears)
	}
}

// releaseOthers notifies hosts that are not in the next world that the launcher will not come back to them.
func (d *daemon) releaseOthers(former, next *wire.Roster) {
	if former == nil {
		return
	}
	for _, p := range former.Peers {
		if _, ok := member.Peer(next, p.ID); !ok && p.ID != d.job.HostID {
			d.net.Notify(p.ID, &wire.Without{Epoch: next.Epoch})
		}
	}
}
