package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorun/collective"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
)

// How the hosts of a roster form its world: gossip and links report, the epoch machine decides, this file acts.

// Step drives the epoch machine and carries out its actions in the order of their fields.
func (m *Membership) Step(ctx context.Context, ev epoch.Event) {
	a, err := m.machine.Step(ev)
	if err != nil {
		m.cfg.Log.Warn("epoch: dropped an event", "error", err)
		return
	}
	if m.ending {
		return
	}
	if a.Order != nil {
		m.cfg.Tuner.Order(ctx, *a.Order, func(found epoch.Ordered) { m.Step(ctx, epoch.Event{Ordered: &found}) })
	}
	if a.Prepare != nil {
		m.prepare(ctx, *a.Prepare)
	}
	if a.Commit != nil {
		m.commit(ctx, *a.Commit)
	}
	if a.Abort != nil && (!m.job.Elastic || a.Abort.Host == m.job.HostID) { // the others can go on without that host
		m.cfg.Fail("connect hosts", errors.New(a.Abort.Reason), m.reachHint("TCP"))
	}
	for _, s := range a.Send {
		m.cfg.Gossip.Notify(s.To, s.Message) // over a connection of its own; the machine repeats what gets lost
	}
}

// SelfChanged reports to the coordinator what this machine is like now.
func (m *Membership) SelfChanged(ctx context.Context) {
	host := m.cfg.Daemon.Host()
	m.Step(ctx, epoch.Event{Self: &host})
}

const (
	// tickPeriod is the interval after which what has no answer is repeated, at first. It grows up to maxTickPeriod: where
	// many hosts are slow, asking them again makes them slower.
	tickPeriod    = 200 * time.Millisecond
	maxTickPeriod = 5 * tickPeriod
)

// Ticks brings the times at which to call Tick.
func (m *Membership) Ticks() <-chan time.Time { return m.repeat.C }

// Tick repeats what has no answer.
func (m *Membership) Tick(ctx context.Context) {
	if m.machine.State() == epoch.Committed {
		m.tickEvery(tickPeriod)
		return
	}
	m.Step(ctx, epoch.Event{Tick: true})
	m.tickEvery(min(2*m.pace, maxTickPeriod))
}

// tickEvery sets the interval between ticks.
func (m *Membership) tickEvery(pace time.Duration) {
	if pace != m.pace {
		m.pace = pace
		m.repeat.Reset(pace)
	}
}

// AskAgain repeats at once what has no answer: a host that could not give any is back.
func (m *Membership) AskAgain(ctx context.Context) {
	if m.connected && m.machine.State() != epoch.Committed {
		m.Step(ctx, epoch.Event{Tick: true})
		m.tickEvery(tickPeriod)
	}
}

// prepare makes the links of a proposed world, and has the engine listen to them: a host that hears first that the
// world is committed may send before this one has heard of it.
func (m *Membership) prepare(ctx context.Context, w wire.World) {
	failed := func(err error) {
		m.Step(ctx, epoch.Event{Failed: &epoch.Failure{Epoch: w.Epoch, Reason: m.fromHost(err)}})
	}
	world, err := m.worldOf(w)
	if err != nil {
		failed(err)
		return
	}
	l, life := newLinking(m.cfg.Links, m.job.HostID, w, m.job.Elastic, m.cfg.LinkTimeout), newLife(ctx)
	m.needed, m.life = l.needed, life
	unreached := wire.Failed{Step: "connect hosts", Hint: m.reachHint("TCP")}
	l.goOn = func(err error) bool {
		return m.goOn(life.ctx, w.Epoch, err, unreached)
	}
	life.wg.Go(func() {
		err := l.begin(life.ctx)
		var cost wire.Cost
		if err == nil && len(l.peers) > 0 {
			cost = m.cfg.Tuner.Probe(life.ctx, w.Order)
		}
		m.cfg.Loop.Post(life.ctx, func() {
			if life.ctx.Err() != nil {
				return // overtaken by another roster
			}
			if err == nil {
				err = m.cfg.Daemon.Prepare(world)
			}
			if err != nil {
				failed(err)
				return
			}
			m.Step(ctx, epoch.Event{Prepared: &w.Epoch, Cost: cost})
		})
	})
}

// worldOf translates a proposed world for the engine.
func (m *Membership) worldOf(w wire.World) (collective.EngineWorld, error) {
	world := collective.EngineWorld{Epoch: w.Epoch, Size: m.roster.Size}
	for at, id := range w.Order {
		peer, ok := Peer(m.roster, id)
		if !ok {
			return world, fmt.Errorf("enter world of epoch %d: no host has id %d", w.Epoch, id)
		}
		world.Hosts = append(world.Hosts, collective.HostRanks{ID: id, Name: peer.Name, Ranks: peer.Ranks})
		if id == m.job.HostID {
			world.Self = at
		}
	}
	return world, nil
}

// commit begins a world.
func (m *Membership) commit(ctx context.Context, w wire.World) {
	m.epoch, m.current = w.Epoch, w
	if m.job.HostID != slices.Min(w.Order) { // one host is enough to report the ring
		m.current.Order, m.current.Why = nil, nil
	}
	if len(w.Order) > fewHosts {
		m.reachAll(w)
	}
	m.cfg.Daemon.Enter(ctx, w)
}

// reachAll has a large world that has begun make the links that it could begin without.
func (m *Membership) reachAll(w wire.World) {
	limit, life := m.cfg.LinkTimeout, m.life
	l := newLinking(m.cfg.Links, m.job.HostID, w, m.job.Elastic, limit)
	timeout := m.Lease() + limit
	life.wg.Go(func() {
		pause := time.NewTimer(reachAfter)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-life.ctx.Done():
			return
		}
		l.rest(life.ctx, timeout, func(peers []int, err error) {
			m.cfg.Loop.Post(life.ctx, func() {
				switch {
				case m.ending || life.ctx.Err() != nil:
				case m.job.Elastic:
					m.unlinked = append(m.unlinked, peers...)
				default:
					m.cfg.Fail("connect hosts", err, m.reachHint("TCP"))
				}
			})
		})
	})
}
