package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/worker/member"
	"gorun/worker/migrate"
	"gorun/worker/migrate/vmtools"
)

// Hosts that stand still for a while, as virtual machines do that are moved: if they know it before, they have the ring
// pause and say so; they renew their links after. If no one announces it, links keep what is under way until the
// host is back.

const (
	// moveMargin is how much sooner than vSphere one stops waiting for others.
	moveMargin = 5 * time.Second
	// announceLimit is how long the others have to hear that this host moves.
	announceLimit = 3 * time.Second
)

// live tells the launcher that this host is there. It is not the loop that does: it must not wait for a launcher that
// does not read.
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

// beat looks once in a while whether time passed as it should, and which peers are suspect by now.
func (d *daemon) beat(ctx context.Context) {
	if gap := d.motion.pulse.Beat(vmtools.SinceBoot()); gap > 0 {
		d.peers.Paused(time.Now())
		d.arrived(ctx, fmt.Sprintf("stood still for %.1f s", gap.Seconds()), false, func() {})
	}
	d.reportPeers()
}

// watchMoves learns of moves of this machine, where there is somebody to tell.
func (d *daemon) watchMoves(ctx context.Context) {
	path := d.job.VMTools
	if path == "" && d.machine.Host().Platform == "vmware" {
		path = vmtools.Find()
	}
	if path == "" {
		return
	}
	token := ""
	if name, err := os.Hostname(); err == nil && d.cfg.State != "" {
		token = filepath.Join(d.cfg.State, "vmtools", name)
	}
	d.loop.Go(func() {
		vmtools.Run(ctx, vmtools.Config{Path: path, Token: token, Handle: func(ctx context.Context, ev migrate.Event, ready func()) {
			d.post(ctx, func() { d.moves(ctx, ev, ready) })
		}})
	})
}

// moves takes what is known of a move of this machine; ready is to be called when it may begin.
func (d *daemon) moves(ctx context.Context, ev migrate.Event, ready func()) {
	switch ev.Kind {
	case migrate.Registered:
		d.tell(ev.Text)
	case migrate.Refused:
		d.tell("vSphere does not announce moves of this machine: " + ev.Text)
	case migrate.Starts:
		d.beginMove(ctx, ev, ready)
	case migrate.Waits:
		d.moveWithin(ctx, d.motion.announced, ev.Limit)
	case migrate.Lasts: // the others go on to expect that this host falls silent
		d.tell("the move goes on, and the ring does not stand still for it any longer")
		d.endMove(ctx, d.motion.announced)
	case migrate.Missed:
		d.tell("vSphere announced a move, but that was read too late: " + ev.Text)
	case migrate.Acknowledged:
		d.tell("ready to be moved, vSphere knows")
	case migrate.Ends, migrate.Moved:
		d.tune.ForgetOwn()
		m := d.motion.announced // another one may begin before this one is looked after
		d.arrived(ctx, ev.Text, true, func() { d.endMove(ctx, m) })
	case migrate.Stays: // and stood still for a while all the same, perhaps; its ways are what they were
		m := d.motion.announced
		d.arrived(ctx, ev.Text, false, func() { d.endMove(ctx, m) })
	}
}

// motion is how this machine moves, or stands still.
type motion struct {
	pulse     migrate.Pulse // shows that time did not pass as it should
	announced *move         // the last move that vSphere announced, nil for none
}

// move is one that vSphere has announced.
type move struct {
	wish uint32 // for a pause
	told bool   // the others know of it
	over bool
	tell func(how string)   // them
	stop context.CancelFunc // the wait for vSphere's limit
}

// beginMove has the whole ring stand still, tells the others, and lets vSphere go on. Of several machines that are
// to be moved the others wait for the pause that is theirs, but no longer than vSphere waits: then the machine moves
// although operations are under way, which links keep.
func (d *daemon) beginMove(ctx context.Context, ev migrate.Event, ready func()) {
	d.endMove(ctx, d.motion.announced) // one of which nothing was heard any more
	m := &move{stop: func() {}}
	d.motion.announced = m
	m.tell = func(how string) {
		if m.over || m.told {
			return
		}
		m.told = true
		m.stop()
		d.tell(how)
		d.announce(ctx, &wire.Migrating{Host: d.job.HostID, State: wire.MoveStarts, Text: ev.Text}, ready)
	}
	if len(d.tune.Ring()) < 2 {
		m.tell("no other host waits for this one")
		return
	}
	begin := time.Now()
	m.wish = d.pauses.NextWish()
	d.moveWithin(ctx, m, ev.Limit)
	d.pauses.Want(ctx, m.wish, func() {
		m.tell(fmt.Sprintf("the ring stands still for the move after %.1f s", time.Since(begin).Seconds()))
	}, func(reason string) { m.tell("will be moved while operations are under way: " + reason) })
}

// moveWithin has the others be told of a move before vSphere waits no longer, which it does for so long from now.
func (d *daemon) moveWithin(ctx context.Context, m *move, vSphere time.Duration) {
	if m == nil || m.over || m.told {
		return
	}
	m.stop()
	waiting, stop := context.WithCancel(ctx)
	m.stop = stop
	d.loop.Go(func() {
		limit := time.NewTimer(vSphere - min(moveMargin, vSphere/4))
		defer limit.Stop()
		select {
		case <-limit.C:
			d.post(ctx, func() { m.tell("will be moved while operations are under way: vSphere waits no longer") })
		case <-waiting.Done():
		}
	})
}

// endMove lets the ring go on.
func (d *daemon) endMove(ctx context.Context, m *move) {
	if m == nil || m.over {
		return
	}
	m.over = true
	m.stop()
	if m.wish != 0 {
		d.pauses.End(ctx, pause.Done{Wish: m.wish})
	}
}

// arrived goes on after a move or a pause: connections may be dead without showing it, the others may have given
// this host up, and its network may be another one; after a move it is. then is called when that is looked after.
func (d *daemon) arrived(ctx context.Context, text string, moved bool, then func()) {
	if moved {
		d.machine.DoubtLabels()
	}
	if d.member.Ending() || d.member.Roster() == nil {
		then()
		return
	}
	var addrs []string
	for _, p := range d.member.Others() {
		d.net.Links().Kick(p.ID)
		addrs = append(addrs, p.Gossip)
	}
	d.announce(ctx, &wire.Migrating{Host: d.job.HostID, State: wire.MoveEnds, Text: text, Moved: moved}, func() {})
	d.member.AskAgain(ctx)
	connected := d.member.Connected() // before, no peer has met this host: it greets the others when the world is formed
	d.loop.Go(func() {
		if connected && len(addrs) > 0 {
			limit, cancel := context.WithTimeout(ctx, announceLimit)
			defer cancel()
			if err := d.net.Greet(limit, addrs[:min(len(addrs), member.MaxGreeted)]); err != nil {
				d.log.Debug("gossip: not joined again", "error", err)
			}
		}
		d.machine.ProbeAgain(ctx, "after the pause ", then)
	})
}

// peerMoves takes a peer's word about its own move.
func (d *daemon) peerMoves(ctx context.Context, peer int, m *wire.Migrating) {
	if m.State == wire.MoveStarts {
		now := time.Now()
		d.peers.Moves(now, peer, now.Add(d.peers.timing.MoveLimit))
		return
	}
	d.peers.Moves(time.Now(), peer, time.Time{})
	d.net.Links().Kick(peer)
	if m.Moved { // to where ways are others
		d.tune.ForgetPeer(peer)
	}
	d.member.AskAgain(ctx)
}

// hostMoves takes the launcher's word about the move of a host, which knows it from elsewhere than that host.
func (d *daemon) hostMoves(ctx context.Context, m *wire.Migrating) {
	switch {
	case m.Host != d.job.HostID:
		d.peerMoves(ctx, m.Host, m)
	case m.State == wire.MoveEnds:
		d.machine.MovedTo(m)
		d.arrived(ctx, m.Text, true, func() {})
	}
}
