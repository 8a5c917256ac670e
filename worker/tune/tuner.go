// Package tune finds the ring of a world, and knows what the edges of a host carry.
//
// Links know their edges from what they carry anyway: the round trip, and the bandwidth where they had more to send
// than went (edges.go). The launcher gets that at the end of the job.
//
// The ring of a world stays as it is. Only with --ring-order topology the daemon that coordinates, the one of the lowest
// host id, has operations go over another ring when hosts are not what they were, for example after a move, and another
// ring crosses fewer borders.
package tune

import (
	"context"
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
	// Settled returns what the hosts of a world that has begun are like, in the order of their ids; none while a world
	// is formed.
	Settled() (hosts []topology.Host)
	// Facts returns the topology file.
	Facts() *facts.File
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
	loop.Component
	Daemon Daemon
	Links  Links
	Pauses Pauses
}

const (
	// probeTimeout is how long it may take to measure a link.
	probeTimeout = 500 * time.Millisecond
	// changeEvery is how long a ring stays at least.
	changeEvery = time.Minute
)

// Tuner is what one host knows of the edges of its job. The daemon's loop alone calls its methods, but for Probe.
type Tuner struct {
	cfg   Config
	job   *wire.Job
	edges edges
	ticks int
	ring  []int              // host ids of the present world, or the one before, in the order of its ring
	end   context.CancelFunc // ends the search for a ring, which is under way or over

	stale   bool      // hosts are not what they were when the ring was found
	change  uint32    // the request for a pause to change the ring, 0 for none
	changed time.Time // when the ring changed last, or was to
}

// New returns a tuner that knows nothing yet.
func New(cfg Config) *Tuner { return &Tuner{cfg: cfg, job: cfg.Job, edges: edges{}, end: func() {}} }

// Ring returns the host ids of the present world, or the one before, in the order of its ring.
func (t *Tuner) Ring() []int { return t.ring }

// Begin takes the ring of a world that begins.
func (t *Tuner) Begin(w wire.World) {
	t.ring, t.stale = w.Order, false
	t.lookAtLinks(w.Order)
}

// Changed takes another ring of the present world.
func (t *Tuner) Changed(order []int) { t.ring = order }

// Stop ends the search for a ring: there is another roster.
func (t *Tuner) Stop() { t.end() }

// HostsChanged takes note that a host of the world is not what it was.
func (t *Tuner) HostsChanged() { t.stale = true }

// Watch is called once a second: it looks at the links, and on the host that coordinates whether the ring still fits.
func (t *Tuner) Watch(ctx context.Context) {
	t.ticks++
	ids := t.cfg.Daemon.Members()
	if len(ids) < 2 {
		return
	}
	if ids[0] == t.job.HostID {
		t.reconsider(ctx)
	}
	if len(ids) > manyHosts && t.ticks%8 != 0 {
		return
	}
	for _, id := range t.lookAtLinks(ids) {
		if c := t.edges.to(id); time.Since(c.asked) >= triedFor {
			c.asked = time.Now()
			t.try(ctx, id)
		}
	}
}

// lookAtLinks takes what links have counted, and returns the peers for which that is doubtful.
func (t *Tuner) lookAtLinks(ids []int) (doubts []int) {
	members := t.cfg.Daemon.Members()
	hosts := t.cfg.Daemon.Settled()
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

// ForgetPeer drops what is known of the edge to a peer, because it has moved.
func (t *Tuner) ForgetPeer(peer int) { t.edges.forget(peer) }

// ForgetOwn drops what this host knows of its edges, because it has moved.
func (t *Tuner) ForgetOwn() {
	for peer := range t.edges {
		t.edges.forget(peer)
	}
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

// try finds out how much an edge to a peer carries, because what traffic shows is doubtful.
func (t *Tuner) try(ctx context.Context, peer int) {
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
		t.cfg.Loop.Post(ctx, func() { t.edges.to(peer).tried(best) })
	})
}

// search ends the search before, and runs another one beside the daemon's loop, which has heartbeats and ranks to look
// after: with 1,000 hosts it takes a tenth of a second of a CPU to find a ring (make rings). Then it posts the ring to
// found, unless another search begins or Stop is called before.
func (t *Tuner) search(ctx context.Context, hosts []topology.Host, found func(topology.Ring)) {
	t.end()
	ctx, t.end = context.WithCancel(ctx)
	wanted := ctx
	by, nics, file := topology.By(t.job.RingOrder), t.job.NICs, t.cfg.Daemon.Facts()
	t.cfg.Loop.Go(func() {
		known, rails := file.Edges(hosts), []string(nil)
		usable := topology.OnlyNICs(hosts, nics)
		if len(nics) > 0 {
			rails = topology.Rails(usable)
		}
		known = topology.WithSums(usable, known, rails)
		ring := topology.OrderBy(wanted, by, usable, known)
		if wanted.Err() == nil {
			t.cfg.Loop.Post(wanted, func() { found(ring) })
		}
	})
}

// Order finds the ring of a new world, and posts it to found, unless another search begins or Stop is called before.
func (t *Tuner) Order(ctx context.Context, q epoch.Question, found func(epoch.Ordered)) {
	t.search(ctx, q.Hosts, func(ring topology.Ring) { found(epoch.Ordered{Number: q.Number, Ring: ring}) })
}

// reconsider looks, on the host that coordinates, whether another ring pays, because hosts have changed.
func (t *Tuner) reconsider(ctx context.Context) {
	ids, hosts := t.cfg.Daemon.Members(), t.cfg.Daemon.Settled()
	if topology.By(t.job.RingOrder) != topology.ByTopology || !t.stale || t.change != 0 || time.Since(t.changed) < changeEvery ||
		len(hosts) != len(ids) || !slices.Equal(slices.Sorted(slices.Values(t.ring)), ids) {
		return
	}
	t.stale = false
	present := make([]int, len(ids))
	for i, id := range t.ring {
		present[i], _ = slices.BinarySearch(ids, id)
	}
	t.search(ctx, hosts, func(ring topology.Ring) {
		if why, pays := topology.Pays(topology.OnlyNICs(hosts, t.job.NICs), present, ring.Order); pays && !t.stale {
			t.changeRing(ctx, ids, ring, why)
		}
	})
}

// changeRing has operations go over another ring, from a pause on.
func (t *Tuner) changeRing(ctx context.Context, ids []int, ring topology.Ring, why string) {
	t.changed = time.Now()
	done := pause.Done{Request: t.cfg.Pauses.NextRequest(), Why: ring.Why, Text: why}
	for _, at := range ring.Order {
		done.Order = append(done.Order, ids[at])
	}
	t.change = done.Request
	t.cfg.Pauses.Want(ctx, done.Request, func() {
		t.change = 0
		t.cfg.Pauses.End(ctx, done)
	}, func(reason string) {
		t.change = 0
		t.cfg.Tell("the ring stays as it is, although another one pays: %s", reason)
	})
}
