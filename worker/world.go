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
	"gorun/rendezvous/wire"
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
		if ev.Peer < len(d.job.Hosts) {
			d.lost(ev.Peer, fmt.Errorf("silent for %v, as %s reports", gossip.Lease, d.self.Name))
		}
	case gossip.Joined:
		if ev.Peer < len(d.job.Hosts) {
			d.step(ctx, epoch.Event{Seen: &ev.Peer})
		}
	case gossip.Message:
		if d.roster == nil {
			return // too early to act on; it will be said again
		}
		m, err := wire.Unmarshal(ev.Message)
		if err != nil {
			d.log.Warn("gossip: dropped a message", "from", ev.Peer, "error", err)
			return
		}
		d.step(ctx, epoch.Event{Message: m})
	}
}

// step drives the epoch machine and does what it says, in the order of its fields.
func (d *daemon) step(ctx context.Context, ev epoch.Event) {
	a, err := d.machine.Step(ev)
	if err != nil {
		d.log.Warn("epoch: dropped an event", "error", err)
		return
	}
	if d.stopping {
		return
	}
	if a.Prepare != nil {
		d.prepare(ctx, *a.Prepare)
	}
	if a.Commit != nil {
		d.commit(ctx, *a.Commit)
	}
	if a.Abort != nil {
		d.fail("connect hosts", fmt.Errorf("%s", a.Abort.Reason), "hosts must reach each other directly over TCP: check firewalls between them, and --ssh-config aliases that hide addresses")
	}
	for _, s := range a.Send {
		d.wg.Go(func() { // over a connection of its own; the machine repeats what gets lost
			b, err := wire.Marshal(s.Message)
			if err == nil {
				err = d.gossip.Send(s.To, b)
			}
			if err != nil {
				d.log.Debug("gossip: not sent", "to", s.To, "error", err)
			}
		})
	}
}

// prepare makes the links of a proposed world.
func (d *daemon) prepare(ctx context.Context, w wire.World) {
	var peers []int
	for _, id := range w.Order {
		if id != d.job.HostID {
			peers = append(peers, id)
		}
	}
	d.wg.Go(func() {
		limit, cancel := context.WithTimeout(ctx, linkPatience)
		defer cancel()
		err := d.mesh.Connect(limit, peers)
		var cost wire.Cost
		if err == nil && len(peers) > 0 {
			cost = d.measure(limit, w)
		}
		d.post(ctx, func() {
			if err != nil {
				d.step(ctx, epoch.Event{Failed: &epoch.Failure{Epoch: w.Epoch, Reason: fmt.Sprintf("%s: %v", d.self.Name, err)}})
				return
			}
			d.step(ctx, epoch.Event{Prepared: &w.Epoch, Cost: cost})
		})
	})
}

// measure finds out what messages to the next host of the ring cost. Without an answer in time the others'
// numbers do.
func (d *daemon) measure(ctx context.Context, w wire.World) wire.Cost {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	at := slices.Index(w.Order, d.job.HostID)
	cost, err := d.prober.Measure(ctx, w.Order[(at+1)%len(w.Order)])
	if err != nil {
		d.log.Debug("link: not measured", "error", err)
		return wire.Cost{}
	}
	return wire.Cost(cost)
}

// commit enters the world and starts the ranks.
func (d *daemon) commit(ctx context.Context, w wire.World) {
	world := collective.World{Epoch: w.Epoch, Size: d.job.Size, Cost: schedule.Cost(w.Cost)}
	for at, id := range w.Order {
		peer := d.roster.Peers[id]
		world.Hosts = append(world.Hosts, collective.Member{ID: id, Name: peer.Name, Ranks: peer.Ranks})
		if id == d.job.HostID {
			world.Self = at
		}
	}
	if err := d.engine.SetWorld(world); err != nil {
		d.fail("enter world", err, "")
		return
	}
	ranks := session.World{Epoch: w.Epoch, Size: d.job.Size, Hosts: len(w.Order)}
	for _, r := range d.job.Ranks {
		ranks.Places = append(ranks.Places, session.Place{Rank: r.Rank, LocalRank: r.LocalRank, CrossRank: r.CrossRank, CrossSize: r.CrossSize})
	}
	d.sessions.SetWorld(ranks)
	d.out.Write(&wire.Committed{World: w})
	if d.job.Verbose && world.Self == 0 && len(world.Hosts) > 1 {
		d.out.Write(&wire.Log{Text: "between hosts " + d.engine.Describe()})
	}
	d.startRanks(ctx)
}

// checkRoster makes sure that a world can be built on it: the launcher's numbers index our arrays.
func (d *daemon) checkRoster(r *wire.Roster) error {
	seen := make([]bool, d.job.Size)
	for id, p := range r.Peers {
		for _, rank := range p.Ranks {
			if rank < 0 || rank >= len(seen) || seen[rank] {
				return fmt.Errorf("check roster: rank %d of host %d", rank, id)
			}
			seen[rank] = true
		}
	}
	if len(r.Peers) != len(d.job.Hosts) {
		return fmt.Errorf("check roster: %d peers for %d hosts", len(r.Peers), len(d.job.Hosts))
	}
	return nil
}

// join begins to form the world once all addresses are known.
func (d *daemon) join(ctx context.Context, r *wire.Roster) {
	if err := d.checkRoster(r); err != nil {
		d.fail("join", err, "")
		return
	}
	d.roster = r
	d.serveKV(ctx)
	d.wg.Go(func() { d.mesh.Run(ctx) })
	if len(r.Peers) > 1 {
		var addrs []string
		for id, p := range r.Peers {
			if id != d.job.HostID {
				addrs = append(addrs, p.Gossip)
			}
		}
		d.wg.Go(func() {
			limit, cancel := context.WithTimeout(ctx, linkPatience)
			defer cancel()
			if err := d.gossip.Join(limit, addrs[:1]); err != nil {
				d.post(ctx, func() {
					d.fail("join", err, "hosts must reach each other directly over TCP and UDP: check firewalls between them")
				})
			}
		})
	}
	d.step(ctx, epoch.Event{Self: &d.self})
	d.tick.Reset(200 * time.Millisecond)
}
