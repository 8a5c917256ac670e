// Package tune finds out what the edges between hosts are like while a job runs, and adapts the ring and the choice of
// algorithms to it.
//
// Links know their edges from what they carry anyway: the round trip, and the bandwidth where they had more to send
// than went. Each daemon reports to the one that coordinates, the one of the lowest host id, what is new (edges.go).
// The coordinator asks from time to time whether another ring pays (ring.go), and whether the cost that chooses
// algorithms still fits (recalibrate.go); it changes either while the ring is paused. An edge that no ring uses may be
// only as good as its interfaces report, so it is tried for a moment before the ring changes to it.
package tune

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"gorun/collective/link"
	"gorun/collective/schedule"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/worker/loop"
)

// Daemon is what a tuner needs from its daemon.
type Daemon interface {
	// Members returns the hosts of the present roster, ascending; none before there is one.
	Members() []int
	// Settled returns what the hosts of a world that has begun are like, in the order of their ids, and its epoch; no
	// hosts while a world is formed.
	Settled() (hosts []topology.Host, epoch uint32)
	// Facts returns the topology file.
	Facts() *facts.File
	// Send sends a message to a peer, which may miss it.
	Send(peer int, m wire.Message)
	// Tell shows text to users of -v.
	Tell(text string)
}

// Links are what a tuner reads and measures of this host's links.
type Links interface {
	// Status returns what the link to a peer has counted.
	Status(peer int) (link.Status, bool)
	// Measure finds out what messages to a peer cost.
	Measure(ctx context.Context, peer int) (schedule.Cost, error)
}

// Pauses pause the ring.
type Pauses interface {
	NextRequest() uint32
	Want(ctx context.Context, request uint32, held func(), refused func(reason string))
	End(ctx context.Context, done pause.Done)
}

// Config is what a tuner is made from.
type Config struct {
	Job    *wire.Job
	Loop   *loop.Loop
	Log    *slog.Logger
	Daemon Daemon
	Links  Links
	Pauses Pauses
}

// probeTimeout is how long it may take to measure a link.
const probeTimeout = 500 * time.Millisecond

// Tuner is what one host knows of the edges of its job. The daemon's loop alone calls its methods, but for Probe.
type Tuner struct {
	cfg    Config
	job    *wire.Job
	edges  edgeWatch
	search search          // for a ring
	again  reconsideration // of the ring
	cost   recalibration
	ring   []int           // host ids of the present world, or the one before, in the order of its ring
	rings  []wire.RailRing // of the present world, if it has several

	change  uint32    // the request for a pause to change the ring, 0 for none
	changed time.Time // when the ring changed last, or was to
}

// New returns a tuner that knows nothing yet.
func New(cfg Config) *Tuner { return &Tuner{cfg: cfg, job: cfg.Job, edges: newEdgeWatch()} }

// Ring returns the host ids of the present world, or the one before, in the order of its ring.
func (t *Tuner) Ring() []int { return t.ring }

// Begin takes the ring and the cost of a world that begins.
func (t *Tuner) Begin(w wire.World) {
	t.cost.begin(schedule.Cost(w.Cost))
	t.ring, t.rings = w.Order, w.Rings
	clear(t.edges.asked)
	clear(t.edges.said) // another host may coordinate
	t.lookAtLinks(w.Order)
}

// Changed takes another ring of the present world.
func (t *Tuner) Changed(order []int) { t.ring, t.rings = order, nil }

// Stop ends the search for a ring: there is another roster.
func (t *Tuner) Stop() { t.search.stop() }

// Watch is called once a second: it looks at the links, reports what is new, and on the host that coordinates whether
// ring and cost still fit.
func (t *Tuner) Watch(ctx context.Context) {
	t.edges.ticks++
	ids := t.cfg.Daemon.Members()
	if len(ids) < 2 || len(ids) > manyHosts && t.edges.ticks%8 != 0 {
		return
	}
	for _, id := range t.lookAtLinks(ids) {
		if c := t.edges.to(id); time.Since(c.asked) >= triedFor {
			c.asked = time.Now()
			t.Try(ctx, id)
		}
	}
	if t.edges.ticks%sayAgain == 0 {
		clear(t.edges.said) // messages may get lost
	}
	news := t.edges.news(len(ids))
	coordinator := ids[0]
	switch {
	case coordinator == t.job.HostID:
		t.edges.hear(t.job.HostID, news)
		t.recalibrate(ctx)
		if t.edges.ticks%int(reconsiderEvery/time.Second) == 0 {
			t.reconsider(ctx)
		}
	case len(news) > 0:
		t.cfg.Daemon.Send(coordinator, &wire.Edges{Edges: news})
	}
}

// lookAtLinks takes what links have counted, and returns the peers for which that is doubtful.
func (t *Tuner) lookAtLinks(ids []int) (doubts []int) {
	members := t.cfg.Daemon.Members()
	hosts, _ := t.cfg.Daemon.Settled()
	own := slices.Index(members, t.job.HostID)
	for _, id := range ids {
		if s, ok := t.cfg.Links.Status(id); ok {
			c, peer := t.edges.to(id), slices.Index(members, id)
			if len(hosts) == len(members) && own >= 0 && peer >= 0 {
				c.least = doubtful * topology.Nominal(hosts[own], hosts[peer])
			}
			if c.look(s) {
				doubts = append(doubts, id)
			}
		}
	}
	return doubts
}

// Known returns what this host knows of its edges now.
func (t *Tuner) Known() []wire.Edge {
	ids := t.cfg.Daemon.Members()
	t.lookAtLinks(ids)
	return t.edges.list(len(ids))
}

// Hear takes what a host reports of its edges.
func (t *Tuner) Hear(from int, edges []wire.Edge) { t.edges.hear(from, edges) }

// ForgetPeer drops what is known of the edges from and to a peer, because it has moved.
func (t *Tuner) ForgetPeer(peer int) {
	t.edges.forgetTo(peer)
	t.edges.forgetHost(peer)
}

// ForgetHost drops what the coordinator knows of the edges from and to a host, whose network is another one.
func (t *Tuner) ForgetHost(host int) { t.edges.forgetHost(host) }

// ForgetOwn drops what this host knows of its own edges, also as the one that coordinates.
func (t *Tuner) ForgetOwn() {
	t.edges.forget()
	t.edges.forgetHost(t.job.HostID)
}

// Probe finds out what messages to the next host of a ring cost. Without an answer in time the others' numbers do.
func (t *Tuner) Probe(ctx context.Context, order []int) wire.Cost {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	at := slices.Index(order, t.job.HostID)
	cost, err := t.cfg.Links.Measure(ctx, order[(at+1)%len(order)])
	if err != nil {
		t.cfg.Log.Debug("link: not measured", "error", err)
		return wire.Cost{}
	}
	return wire.Cost(cost)
}

// Try finds out how much an edge to a peer carries, for the coordinator or because what traffic shows is doubtful.
func (t *Tuner) Try(ctx context.Context, peer int) {
	if peer == t.job.HostID || !slices.Contains(t.cfg.Daemon.Members(), peer) {
		return
	}
	t.cfg.Loop.Go(func() {
		best := 0.0
		for range tries {
			limit, cancel := context.WithTimeout(ctx, tryTimeout)
			if cost, err := t.cfg.Links.Measure(limit, peer); err == nil && cost.Beta > 0 {
				best = max(best, 1/cost.Beta)
			}
			cancel()
			select {
			case <-time.After(tryPause):
			case <-ctx.Done():
				return
			}
		}
		t.cfg.Loop.Post(ctx, func() {
			t.edges.to(peer).tried(best)
			delete(t.edges.said, peer) // to be reported even if it did not change: the coordinator has asked
		})
	})
}

// taskFor returns what a ring of hosts, in the order of their ids, is found from.
func (t *Tuner) taskFor(hosts []topology.Host) ringTask {
	ids := t.cfg.Daemon.Members()
	task := ringTask{by: topology.By(t.job.RingOrder), hosts: hosts, nics: t.job.NICs, facts: t.cfg.Daemon.Facts(),
		former: formerPlaces(t.ring, ids), left: places(t.ring, ids)}
	if task.by == topology.ByMeasured {
		task.heard = t.edges.between(ids)
	}
	return task
}

// Order finds the ring of a new world, and posts it to found, unless another search begins or Stop is called before.
func (t *Tuner) Order(ctx context.Context, q epoch.Question, found func(epoch.Ordered)) {
	task, wanted := t.taskFor(q.Hosts), t.search.begin(ctx)
	t.cfg.Loop.Go(func() {
		ordered := epoch.Ordered{Number: q.Number, Ring: task.ring(wanted)}
		if wanted.Err() == nil {
			t.cfg.Loop.Post(wanted, func() { found(ordered) })
		}
	})
}

// question returns the present one; there is none on a host that does not coordinate, or while the ring is not to be
// changed.
func (t *Tuner) question() (q question, ok bool) {
	by := topology.By(t.job.RingOrder)
	if by != topology.ByMeasured && by != topology.ByTopology || t.change != 0 || time.Since(t.changed) < changeEvery {
		return question{}, false
	}
	hosts, epoch := t.cfg.Daemon.Settled()
	ids := t.cfg.Daemon.Members()
	if order := places(t.ring, ids); hosts == nil || len(order) != len(ids) || len(order) != len(t.ring) {
		return question{}, false // the ring is not one of the roster's hosts
	}
	return question{epoch, hosts, t.cfg.Daemon.Facts(), t.ring, t.rings, t.edges.forgotten, t.edges.heard}, true
}

// reconsider looks, on the host that coordinates, whether another ring pays.
func (t *Tuner) reconsider(ctx context.Context) {
	q, ok := t.question()
	if !ok || !t.again.ask(q) {
		return
	}
	task, wanted := t.taskFor(q.hosts), t.search.begin(ctx)
	t.cfg.Loop.Go(func() {
		change, pays := task.change(wanted, q.rings)
		t.cfg.Loop.Post(ctx, func() {
			if wanted.Err() != nil {
				t.again.withdraw()
				return
			}
			now, ok := t.question()
			if t.again.answer(pays, now) && ok {
				t.prefer(ctx, task, change)
			}
		})
	})
}

// prefer changes to another ring, which pays, if all its unsure edges have been tried and the ring was found from the
// results. Otherwise it requests the tries that are due. Unsure are the edges that no one has measured and, if
// measurements decide, all that the present ring does not use.
func (t *Tuner) prefer(ctx context.Context, from ringTask, change topology.Change) {
	ids, unsure := t.cfg.Daemon.Members(), change.Unsure
	if from.by == topology.ByMeasured {
		unsure = append(unsure, newEdges(from.left, change.Ring.Order)...)
	}
	sure := true
	for _, places := range unsure {
		pair := topology.Pair{From: ids[places.From], To: ids[places.To]}
		ask, known := t.edges.doubt(pair, time.Now())
		sure = sure && known && from.bandwidth(places) == t.edges.all[pair].Bandwidth
		switch {
		case ask && pair.From == t.job.HostID:
			t.Try(ctx, pair.To)
		case ask:
			t.cfg.Daemon.Send(pair.From, &wire.Try{To: pair.To})
		}
	}
	if sure {
		t.changeRing(ctx, ids, change)
	}
}

// changeRing has operations go over another ring, from a pause on.
func (t *Tuner) changeRing(ctx context.Context, ids []int, change topology.Change) {
	t.changed = time.Now()
	done := pause.Done{Why: change.Ring.Why, Text: change.Why}
	for _, at := range change.Ring.Order {
		done.Order = append(done.Order, ids[at])
	}
	done.Request = t.cfg.Pauses.NextRequest()
	t.change = done.Request
	t.cfg.Pauses.Want(ctx, done.Request, func() {
		t.change = 0
		t.cfg.Pauses.End(ctx, done)
	}, func(reason string) {
		t.change = 0
		t.cfg.Daemon.Tell("the ring stays as it is, although another one pays: " + reason)
	})
}

// recalibrate checks, on the host that coordinates, whether the cost of messages still fits, and has it changed if not.
func (t *Tuner) recalibrate(ctx context.Context) {
	if by, err := schedule.ParseAlgorithm(t.job.Algorithm); err != nil || by != schedule.Auto {
		return // the user has chosen
	}
	c := &t.cost
	now := t.edges.worst(t.ring)
	cost, off := c.look(now)
	if !off || c.request != 0 || t.change != 0 {
		return
	}
	done := pause.Done{Request: t.cfg.Pauses.NextRequest(), Cost: wire.Cost(cost),
		Text: fmt.Sprintf("the slowest edge of the ring carries %.0f Mbit/s instead of %.0f", 8e-6*now.bandwidth,
			8e-6*c.first.bandwidth)}
	c.request, c.age = done.Request, 0
	t.cfg.Pauses.Want(ctx, done.Request, func() {
		c.request, c.cost, c.off = 0, cost, 0
		t.cfg.Pauses.End(ctx, done)
	}, func(reason string) {
		c.request = 0
		t.cfg.Daemon.Tell("algorithms are chosen as before, although the edges between hosts are not what they were: " +
			reason)
	})
}
