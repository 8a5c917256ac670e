package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorun/collective"
	"gorun/collective/schedule"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/gossip"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/worker/machine"
	"gorun/worker/member"
	"gorun/worker/session"
)

// How the daemons form the world: gossip and links report, the epoch machine decides, this file acts.

// gossiped takes what gossip noticed.
func (d *daemon) gossiped(ctx context.Context, ev gossip.Event) {
	if d.stopping {
		return // no world begins any more
	}
	switch ev.Kind {
	case gossip.Left:
		d.member.alive.GossipLost(time.Now(), ev.Peer)
		d.cfg.LauncherLease.silent(ev.Peer)
		d.reportPeers()
	case gossip.Joined:
		d.gossipHears(ev.Peer)
		d.cfg.LauncherLease.heard(ev.Peer)
		d.tellDeaf(ev.Peer)
		d.step(ctx, epoch.Event{Seen: &ev.Peer})
	case gossip.Message:
		if d.member.roster == nil {
			return // too early to act on; it will be said again
		}
		m, err := wire.Unmarshal(ev.Message)
		if err != nil {
			d.log.Warn("gossip: dropped a message", "from", ev.Peer, "error", err)
			return
		}
		switch m := m.(type) {
		case *wire.Migrating:
			d.peerMoves(ctx, ev.Peer, m)
			return
		case *wire.Moved:
			d.peerMoved(m)
			return
		case *wire.Without:
			d.cfg.LauncherLease.left(m.Epoch)
			return
		case *wire.Hears:
			d.cfg.LauncherLease.peer(m)
			return
		case *wire.Edges:
			d.tune.Hear(ev.Peer, m.Edges)
			return
		case *wire.Try:
			d.tune.Try(ctx, m.To)
			return
		case *wire.Facts:
			if !machine.SameNetwork(d.member.machine.Hosts(), d.member.members(), m) {
				d.tune.ForgetHost(ev.Peer)
			}
		case *wire.Pause:
			d.pauses.Step(ctx, pause.Event{Message: m})
			return
		}
		d.step(ctx, epoch.Event{Message: m})
	}
}

// step drives the epoch machine and does what it says, in the order of its fields.
func (d *daemon) step(ctx context.Context, ev epoch.Event) {
	a, err := d.member.machine.Step(ev)
	if err != nil {
		d.log.Warn("epoch: dropped an event", "error", err)
		return
	}
	if d.stopping {
		return
	}
	if a.Order != nil {
		d.tune.Order(ctx, *a.Order, func(found epoch.Ordered) { d.step(ctx, epoch.Event{Ordered: &found}) })
	}
	if a.Prepare != nil {
		d.prepare(ctx, *a.Prepare)
	}
	if a.Commit != nil {
		d.commit(ctx, *a.Commit)
	}
	if a.Abort != nil && (!d.job.Elastic || a.Abort.Host == d.job.HostID) { // the others can go on without that host
		d.fail("connect hosts", fmt.Errorf("%s", a.Abort.Reason), reachHint)
	}
	for _, s := range a.Send {
		d.send(s.To, s.Message) // over a connection of its own; the machine repeats what gets lost
	}
}

// prepare makes the links of a proposed world, and has the engine listen to them: a host that hears of the
// commitment first may send before this one has heard of it.
func (d *daemon) prepare(ctx context.Context, w wire.World) {
	world, err := d.worldOf(w)
	if err != nil {
		d.step(ctx, epoch.Event{Failed: &epoch.Failure{Epoch: w.Epoch, Reason: fmt.Sprintf("%s: %v", d.job.Name, err)}})
		return
	}
	l := newLinking(d.net.Mesh, d.job.HostID, w, d.job.Elastic, d.member.timing.LinkTimeout)
	d.member.needed = l.needed
	life := newLife(ctx)
	d.member.life = life
	l.goOn = func(err error) bool {
		return d.goOn(life.ctx, w.Epoch, err, wire.Failed{Step: "connect hosts", Hint: reachHint})
	}
	life.wg.Go(func() {
		err := l.begin(life.ctx)
		var cost wire.Cost
		if err == nil && len(l.peers) > 0 {
			cost = d.tune.Probe(life.ctx, w.Order)
		}
		d.post(life.ctx, func() {
			if life.ctx.Err() != nil {
				return // overtaken by another roster
			}
			if err == nil {
				err = d.engine.SetWorld(world)
			}
			if err != nil {
				d.step(ctx, epoch.Event{Failed: &epoch.Failure{Epoch: w.Epoch, Reason: fmt.Sprintf("%s: %v", d.job.Name, err)}})
				return
			}
			d.step(ctx, epoch.Event{Prepared: &w.Epoch, Cost: cost})
		})
	})
}

// goOn tells the launcher of a static job that this host does not reach others, and goes on trying: whether they are silent is for it
// to say. It returns whether there is still a reason to.
func (d *daemon) goOn(ctx context.Context, epoch uint32, err error, said wire.Failed) bool {
	said.Text, said.Code, said.Peer, said.Again = err.Error(), 255, d.job.HostID, true
	wanted := make(chan bool, 1)
	d.post(ctx, func() {
		current := !d.stopping && d.member.roster.Epoch == epoch
		if current && !d.job.Elastic { // see missing
			d.out.Write(&said)
		}
		wanted <- current
	})
	select {
	case current := <-wanted:
		return current
	case <-ctx.Done():
		return false
	}
}

// reachAll has a large world that has begun make the links that it could begin without.
func (d *daemon) reachAll(w wire.World) {
	limit := d.member.timing.LinkTimeout
	l, life, timeout := newLinking(d.net.Mesh, d.job.HostID, w, d.job.Elastic, limit), d.member.life, d.member.lease()+limit
	life.wg.Go(func() {
		pause := time.NewTimer(reachAfter)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-life.ctx.Done():
			return
		}
		l.rest(life.ctx, timeout, func(peers []int, err error) {
			d.post(life.ctx, func() {
				switch {
				case d.stopping || life.ctx.Err() != nil:
				case d.job.Elastic:
					d.member.unlinked = append(d.member.unlinked, peers...)
				default:
					d.fail("connect hosts", err, reachHint)
				}
			})
		})
	})
}

const reachHint = "hosts must reach each other directly over TCP: check firewalls between them, and --ssh-config aliases that hide addresses"

// worldOf is a proposed world in the engine's words.
func (d *daemon) worldOf(w wire.World) (collective.World, error) {
	world := collective.World{Epoch: w.Epoch, Size: d.member.roster.Size}
	for at, id := range w.Order {
		peer, ok := member.Peer(d.member.roster, id)
		if !ok {
			return world, fmt.Errorf("enter world of epoch %d: no host has id %d", w.Epoch, id)
		}
		world.Hosts = append(world.Hosts, collective.Member{ID: id, Name: peer.Name, Ranks: peer.Ranks})
		if id == d.job.HostID {
			world.Self = at
		}
	}
	for _, r := range w.Rings {
		world.Rings = append(world.Rings, collective.Ring{Order: r.Order, Share: r.Share})
	}
	return world, nil
}

// commit lets the ranks into the world, and starts those that do not run yet.
func (d *daemon) commit(ctx context.Context, w wire.World) {
	d.engine.SetCost(schedule.Cost(w.Cost))
	d.member.epoch = w.Epoch
	d.tune.Begin(w)
	d.reportPeers()
	ranks := session.LocalWorld{Epoch: w.Epoch, Size: d.member.roster.Size, Hosts: len(w.Order), Host: d.job.Name}
	for _, r := range d.member.roster.Ranks {
		ranks.Places = append(ranks.Places, session.RankPlace{Process: r.Process, Rank: r.Rank, LocalRank: r.LocalRank, CrossRank: r.CrossRank, CrossSize: r.CrossSize})
	}
	d.sessions.SetWorld(ranks)
	known := w
	if d.job.HostID != slices.Min(w.Order) {
		known.Order, known.Why, known.Rings, known.Split = nil, nil, nil, "" // one host's word about the ring is enough
	}
	d.member.current = known
	d.out.Write(&wire.Committed{World: known})
	d.pauses.Step(ctx, pause.Event{World: &pause.World{Epoch: w.Epoch, Members: w.Order}})
	if len(w.Order) > fewHosts {
		d.reachAll(w)
	}
	if d.job.Verbose && len(w.Order) > 1 && w.Order[0] == d.job.HostID {
		how := "between hosts " + d.engine.Describe()
		if d.job.Encrypt {
			how += "; links are encrypted (TLS 1.3)"
		}
		d.out.Write(&wire.Log{Text: how})
	}
	d.ranks.Enter()
	d.horovod.Seat()
	d.ranks.Start(ctx)
}

// join ends the present world, if there is one, and begins to form the roster's.
func (d *daemon) join(ctx context.Context, r *wire.Roster) {
	if d.stopping || d.member.roster != nil && r.Epoch <= d.member.roster.Epoch {
		return // overtaken
	}
	if err := member.Check(r, d.job.HostID, d.job.Name); err != nil {
		d.fail("join", err, "")
		return
	}
	if err := d.ranks.Admit(r); err != nil {
		d.fail("join", err, "")
		return
	}
	d.net.EndRelay()
	d.net.Locate(r)
	former := d.member.roster
	d.releaseOthers(former, r)
	if former != nil {
		d.pauses.Step(ctx, pause.Event{World: &pause.World{}})
		d.endWorld(r)
	}
	d.member.roster = r
	d.member.unlinked = nil
	d.tune.Stop()
	d.member.peers.Store(r)
	d.member.alive.World(member.IDs(r), d.member.lease())
	d.reportPeers()
	if _, ok := member.Peer(r, d.job.HostID); !ok { // nothing to do here until the next one
		d.cfg.LauncherLease.world(r.Epoch, nil, d.member.lease())
		d.step(ctx, epoch.Event{Roster: &epoch.Roster{Epoch: r.Epoch, Members: member.IDs(r)}})
		return
	}
	if !d.member.joined {
		d.member.joined = true
		d.horovod.Serve(ctx)
	}
	if r.Later {
		d.ranks.Start(ctx)
		return
	}
	d.form(ctx, former)
}

// want tells the launcher that a rank waits for a world which is to be formed later.
func (d *daemon) want() {
	if d.member.roster != nil && d.member.roster.Later && !d.member.connected && !d.member.requested {
		d.member.requested = true
		d.out.Write(&wire.Wanted{})
	}
}

// form begins to form the world of the roster; former is the one before it, if there was one.
func (d *daemon) form(ctx context.Context, former *wire.Roster) {
	r := d.member.roster
	if d.stopping {
		return
	}
	if !d.member.connected {
		if err := d.net.Gossip.Open(); err != nil {
			d.fail("join", err, "")
			return
		}
		d.member.connected = true
		d.loop.Go(func() { d.net.Mesh.Run(ctx) })
	}
	var joiners []string
	for _, p := range r.Peers {
		if _, known := member.Peer(former, p.ID); !known && p.ID != d.job.HostID {
			joiners = append(joiners, p.Gossip)
		}
	}
	if len(joiners) > 0 {
		d.greet(ctx, r.Epoch, joiners[:min(len(joiners), maxGreeted)])
	}
	ids := member.IDs(r)
	d.cfg.LauncherLease.world(r.Epoch, slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return id == d.job.HostID }), d.member.lease())
	d.step(ctx, epoch.Event{Roster: &epoch.Roster{Epoch: r.Epoch, Members: ids}})
	d.step(ctx, epoch.Event{Self: d.self()})
	d.member.repeat.set(tickPeriod)
}

// maxGreeted is how many hosts are greeted, in case that some do not answer.
const maxGreeted = 3

// greet makes hosts known to gossip: one of them is enough, they tell of each other. That it takes long is told, but may be
// because the others stand still, which is for the launcher to say.
func (d *daemon) greet(ctx context.Context, epoch uint32, addrs []string) {
	d.loop.Go(func() {
		for {
			limit, cancel := context.WithTimeout(ctx, d.member.timing.LinkTimeout)
			err := d.net.Gossip.Join(limit, addrs)
			cancel()
			if err == nil || !d.goOn(ctx, epoch, err, wire.Failed{Step: "join",
				Hint: "hosts must reach each other directly over TCP and UDP: check firewalls between them"}) {
				return
			}
		}
	})
}

// endWorld makes way for another roster. What ranks have in flight fails; their processes go on, but for those
// that the roster has no more.
func (d *daemon) endWorld(next *wire.Roster) {
	d.member.life.stop()
	// In this order: when the links are forgotten, nothing of them touches the memory of ranks, who get it
	// back with the end of their operations.
	for _, p := range d.member.others() {
		d.net.Mesh.Forget(p.ID)
	}
	d.engine.Abort(&collective.Error{Code: collective.CodeAborted, Text: fmt.Sprintf("the world of epoch %d ended: %s", d.member.roster.Epoch, next.Reason)})
	d.ranks.EndWorld(next)
}

// send gives a peer a message that it may miss.
func (d *daemon) send(peer int, m wire.Message) {
	d.loop.Go(func() { d.sendNow(peer, m) })
}

// sendNow is send for a goroutine that may wait.
func (d *daemon) sendNow(peer int, m wire.Message) {
	b, err := wire.Marshal(m)
	if err == nil {
		err = d.net.Gossip.Send(peer, b)
	}
	if err != nil {
		d.log.Debug("gossip: not sent", "to", peer, "error", err)
	}
}
