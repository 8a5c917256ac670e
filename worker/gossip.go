package worker

import (
	"context"
	"time"

	"gorun/rendezvous/epoch"
	"gorun/rendezvous/gossip"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
)

// gossiped takes what gossip noticed.
func (d *daemon) gossiped(ctx context.Context, ev gossip.Event) {
	if d.member.Ending() {
		return // no world begins any more
	}
	switch ev.Kind {
	case gossip.Left:
		d.peers.GossipLost(time.Now(), ev.Peer)
		d.cfg.LauncherLease.note(func(s *liveness.LauncherLease) { s.Silent(ev.Peer) })
		d.reportPeers()
	case gossip.Joined:
		d.gossipHears(ev.Peer)
		d.cfg.LauncherLease.note(func(s *liveness.LauncherLease) { s.Heard(ev.Peer) })
		d.repeatDeaf(ev.Peer)
		d.member.Step(ctx, epoch.Event{Seen: &ev.Peer})
	case gossip.Message:
		if d.member.Roster() == nil {
			return // too early to act on; the peer repeats it
		}
		m, err := wire.Unmarshal(ev.Message)
		if err != nil {
			d.log.Warn("gossip: dropped a message", "from", ev.Peer, "error", err)
			return
		}
		d.receiveFrom(ctx, ev.Peer, m)
	}
}

// receiveFrom handles a message of a peer.
func (d *daemon) receiveFrom(ctx context.Context, peer int, m wire.Message) {
	switch m := m.(type) {
	case *wire.Migrating:
		d.moves.Peer(ctx, peer, m)
	case *wire.Moved:
		d.peerMoved(m)
	case *wire.Without:
		d.cfg.LauncherLease.note(func(s *liveness.LauncherLease) { s.Left(m.Epoch) })
	case *wire.Hears:
		d.cfg.LauncherLease.note(func(s *liveness.LauncherLease) { s.Peer(m.Host, m.Stamp, m.Launcher) })
	case *wire.Pause:
		d.pauses.Step(ctx, pause.Event{Message: m})
	case *wire.Facts:
		d.tune.HostsChanged()
		d.member.Step(ctx, epoch.Event{Message: m})
	default:
		d.member.Step(ctx, epoch.Event{Message: m})
	}
}
