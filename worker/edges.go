package worker

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// What the ways between hosts are like, found out while the job runs. Links know it from what they carry anyway:
// the round trip, and the bandwidth where they had more to send than went. Each daemon tells the one that
// coordinates, the one of the lowest host id, what is new. Where another ring would pay if ways that nobody uses are as
// good as their interfaces say, it has those tried for a moment.

const (
	// reconsiderEvery is how often the coordinator asks whether another ring pays.
	reconsiderEvery = 5 * time.Second
	// changeEvery is how long a ring stays at least.
	changeEvery = time.Minute
	// enoughBytes and enoughTime are what it takes to speak of a bandwidth.
	enoughBytes, enoughTime = 4 << 20, 5 * time.Millisecond
	// fading is what remains of a measurement when there is another second of traffic: networks change.
	fading = 0.9
	// rising is how much longer a round trip may get with every look: one among long ones is short by chance no more than
	// for a while, and after a move they may all be longer.
	rising = 1.02
	// newsworthy is how much a number has to change to be told again.
	newsworthy = 0.2
	// manyHosts is from how many hosts on only round trips to the nearest are told.
	manyHosts, nearHosts = 64, 8
	mostTold             = 1 << 12
	// tries is how often a way is tried that nobody uses: traffic of the job may be in the way of one or the other.
	tries = 3
	// triedFor is how long the result of that counts.
	triedFor = time.Minute
	// sayAgain is after how many seconds all is told again.
	sayAgain = 64
	tryPause = 300 * time.Millisecond
)

// carried is what is known of one way from this host.
type carried struct {
	seen  link.Status // what the counters said last
	bytes float64     // while the way was busy, those of the last seconds more than those before
	time  float64     // seconds that took
	edge  wire.Edge
}

// look takes what the link says now.
func (c *carried) look(s link.Status) {
	if rtt := s.RTT.Seconds(); rtt > 0 && c.edge.RTT > 0 {
		c.edge.RTT = min(rtt, c.edge.RTT*rising)
	} else if rtt > 0 {
		c.edge.RTT = rtt
	}
	if s.BusyTime < c.seen.BusyTime { // another link to the same host
		c.seen = link.Status{}
	}
	bytes, busy := s.BusyBytes-c.seen.BusyBytes, s.BusyTime-c.seen.BusyTime
	c.seen = s
	if busy <= 0 {
		return
	}
	c.bytes, c.time = c.bytes*fading+float64(bytes), c.time*fading+busy.Seconds()
	if c.bytes >= enoughBytes && c.time >= enoughTime.Seconds() {
		c.edge.Bandwidth, c.edge.Tried = c.bytes/c.time, false
	}
}

// tried takes what a probe found on a way that nobody used; what was known of it before is old.
func (c *carried) tried(bandwidth float64) {
	c.bytes, c.time = 0, 0
	c.edge.Bandwidth, c.edge.Tried = bandwidth, bandwidth > 0
}

// edgeWatch is what a daemon knows of ways. Only the daemon's loop touches it.
type edgeWatch struct {
	own   map[int]*carried            // of this host, by peer
	said  map[int]wire.Edge           // what the coordinator knows of them
	all   map[topology.Pair]wire.Edge // the coordinator's: of every host, by host ids
	asked map[topology.Pair]time.Time // when it had a way tried that nobody used
	ticks int

	heard     int // how often something in all changed
	forgotten int // how often something of it was forgotten
	again     reconsideration

	change  uint32    // the wish for a pause to change the ring, 0 for none
	changed time.Time // when the ring changed last, or was to
}

func newEdgeWatch() edgeWatch {
	return edgeWatch{own: map[int]*carried{}, said: map[int]wire.Edge{}, all: map[topology.Pair]wire.Edge{}, asked: map[topology.Pair]time.Time{}}
}

// way returns what is known of the way to a peer.
func (w *edgeWatch) way(peer int) *carried {
	if w.own[peer] == nil {
		w.own[peer] = &carried{edge: wire.Edge{To: peer}}
	}
	return w.own[peer]
}

// news returns what differs from what the coordinator knows, and notes it as said.
func (w *edgeWatch) news(peers int) []wire.Edge {
	var out []wire.Edge
	for _, e := range w.list(peers) {
		if old := w.said[e.To]; differs(old.Bandwidth, e.Bandwidth) || differs(old.RTT, e.RTT) || old.Tried != e.Tried {
			w.said[e.To] = e
			out = append(out, e)
		}
	}
	return out
}

func differs(before, now float64) bool { return math.Abs(now-before) > newsworthy*before }

// list returns what is known of this host's ways in the order of the peers: all of them, or among many peers those that carry
// data and those to the nearest.
func (w *edgeWatch) list(peers int) []wire.Edge {
	var out []wire.Edge
	for _, peer := range slices.Sorted(maps.Keys(w.own)) {
		if e := w.own[peer].edge; e.RTT > 0 || e.Bandwidth > 0 {
			out = append(out, e)
		}
	}
	if peers <= manyHosts {
		return out
	}
	slices.SortStableFunc(out, func(a, b wire.Edge) int { return cmp.Compare(a.RTT, b.RTT) })
	near := 0
	out = slices.DeleteFunc(out, func(e wire.Edge) bool {
		near++
		return e.Bandwidth == 0 && near > nearHosts
	})
	slices.SortFunc(out, func(a, b wire.Edge) int { return a.To - b.To })
	return out
}

// hear takes what a host tells of its ways.
func (w *edgeWatch) hear(from int, edges []wire.Edge) {
	for _, e := range edges[:min(len(edges), mostTold)] {
		way := topology.Pair{From: from, To: e.To}
		if w.all[way] != e {
			w.all[way] = e
			w.heard++
		}
	}
}

// between returns what is known of the ways between hosts of these ids, which ascend, by their places in the list.
func (w *edgeWatch) between(ids []int) []topology.Edge {
	var out []topology.Edge
	for way, e := range w.all {
		from, isFrom := slices.BinarySearch(ids, way.From)
		to, isTo := slices.BinarySearch(ids, way.To)
		if isFrom && isTo {
			out = append(out, topology.Edge{From: from, To: to, RTT: e.RTT, Bandwidth: e.Bandwidth, InJob: e.Bandwidth > 0})
		}
	}
	slices.SortFunc(out, func(a, b topology.Edge) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	return out
}

// watchEdges is called once a second: it looks at the links and tells what is new.
func (d *daemon) watchEdges(ctx context.Context) {
	if d.roster == nil || d.began == 0 || d.stopping {
		return
	}
	w := &d.edges
	w.ticks++
	ids := d.memberIDs()
	if len(ids) < 2 || len(ids) > manyHosts && w.ticks%8 != 0 {
		return
	}
	d.lookAtLinks(ids)
	if w.ticks%sayAgain == 0 {
		clear(w.said) // messages may get lost
	}
	news := w.news(len(ids))
	coordinator := ids[0]
	switch {
	case coordinator == d.job.HostID:
		w.hear(d.job.HostID, news)
		d.refitCost(ctx)
		if w.ticks%int(reconsiderEvery/time.Second) == 0 {
			d.reconsider(ctx)
		}
	case len(news) > 0:
		d.send(coordinator, &wire.Edges{Edges: news})
	}
}

// lookAtLinks takes what links say now.
func (d *daemon) lookAtLinks(ids []int) {
	for _, id := range ids {
		if s, ok := d.mesh.Status(id); ok {
			d.edges.way(id).look(s)
		}
	}
}

// memberIDs are the hosts of the present roster, ascending.
func (d *daemon) memberIDs() []int {
	var ids []int
	for _, p := range d.roster.Peers {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids
}

// send gives a peer a message that it may miss.
func (d *daemon) send(peer int, m wire.Message) {
	d.loop.Go(func() { d.sendNow(peer, m) })
}

// sendNow is send for a goroutine that may wait.
func (d *daemon) sendNow(peer int, m wire.Message) {
	b, err := wire.Marshal(m)
	if err == nil {
		err = d.gossip.Send(peer, b)
	}
	if err != nil {
		d.log.Debug("gossip: not sent", "to", peer, "error", err)
	}
}

// presentRing is the order of the ring by places in the roster, nil if it is not one of the roster's hosts.
func (d *daemon) presentRing() []int {
	ids := d.memberIDs()
	if order := places(d.ring, ids); len(order) == len(ids) && len(order) == len(d.ring) {
		return order
	}
	return nil
}

// places is where hosts of a ring are among ids in ascending order, without those that are not there.
func places(ring, ids []int) []int {
	return slices.DeleteFunc(formerPlaces(ring, ids), func(at int) bool { return at < 0 })
}

// formerPlaces is where hosts of a ring are among ids in ascending order, -1 for those that are not there.
func formerPlaces(ring, ids []int) (order []int) {
	for _, id := range ring {
		at, member := slices.BinarySearch(ids, id)
		if !member {
			at = -1
		}
		order = append(order, at)
	}
	return order
}

// newWays are those of another ring that the present one does not go. What was once measured there is no reason to
// change: whatever made a way of the present ring slow may have done so to others, first of all to the same one in the
// other direction.
func newWays(present, other []int) []topology.Pair {
	ways := func(ring []int) []topology.Pair {
		var out []topology.Pair
		for i, from := range ring {
			out = append(out, topology.Pair{From: from, To: ring[(i+1)%len(ring)]})
		}
		return out
	}
	old := ways(present)
	return slices.DeleteFunc(ways(other), func(p topology.Pair) bool { return slices.Contains(old, p) })
}

// doubt tells whether a way that nobody uses is to be tried now, and whether the result of that is there. What was known of
// it before is forgotten.
func (w *edgeWatch) doubt(way topology.Pair, now time.Time) (ask, known bool) {
	if asked, ok := w.asked[way]; ok && now.Sub(asked) < triedFor {
		return false, w.all[way].Bandwidth > 0
	}
	w.asked[way] = now
	w.all[way] = wire.Edge{To: way.To, RTT: w.all[way].RTT}
	w.heard++
	return true, false
}

// leftRail returns the network of a ring in which some host has no NIC any more.
func leftRail(hosts []topology.Host, rings []wire.RailRing) (rail string, left bool) {
	for _, r := range rings {
		for i := range hosts {
			if !slices.Contains(topology.Rails(hosts[i:i+1]), r.Rail) {
				return r.Rail, true
			}
		}
	}
	return "", false
}

// changeRing has operations go another way, from a pause on.
func (d *daemon) changeRing(ctx context.Context, ids []int, change topology.Change) {
	w := &d.edges
	w.changed = time.Now()
	done := pause.Done{Why: change.Ring.Why, Text: change.Why}
	for _, at := range change.Ring.Order {
		done.Order = append(done.Order, ids[at])
	}
	done.Wish = d.nextWish()
	w.change = done.Wish
	d.wantPause(ctx, done.Wish, func() {
		w.change = 0
		d.endPause(ctx, done)
	}, func(reason string) {
		w.change = 0
		d.tell("the ring stays as it is, although another one pays: " + reason)
	})
}

// forget drops what is known of this host's ways, because its network is another one.
func (w *edgeWatch) forget() {
	for peer := range w.own {
		w.forgetWay(peer)
	}
}

// forgetWay drops what is known of this host's way to a peer. What links have counted until now stays seen, or else it
// would be taken for traffic of the new way.
func (w *edgeWatch) forgetWay(peer int) {
	if c := w.own[peer]; c != nil {
		w.own[peer] = &carried{seen: c.seen, edge: wire.Edge{To: peer}}
	}
	delete(w.said, peer)
}

// forgetOwnWays drops what this host knows of its own ways, also as the one that coordinates.
func (d *daemon) forgetOwnWays() {
	d.edges.forget()
	d.edges.forgetHost(d.job.HostID)
}

// forgetHost drops what the coordinator knows of the ways from and to a host whose network is another one.
func (w *edgeWatch) forgetHost(host int) {
	about := func(way topology.Pair) bool { return way.From == host || way.To == host }
	maps.DeleteFunc(w.all, func(way topology.Pair, _ wire.Edge) bool { return about(way) })
	maps.DeleteFunc(w.asked, func(way topology.Pair, _ time.Time) bool { return about(way) })
	w.heard++
	w.forgotten++
}

// try finds out how much a way carries that nobody uses, for the coordinator.
func (d *daemon) try(ctx context.Context, peer int) {
	if _, member := peerOf(d.roster, peer); !member || peer == d.job.HostID {
		return
	}
	d.loop.Go(func() {
		best := 0.0
		for range tries {
			limit, cancel := context.WithTimeout(ctx, probePatience)
			if cost, err := d.prober.Measure(limit, peer); err == nil && cost.Beta > 0 {
				best = max(best, 1/cost.Beta)
			}
			cancel()
			select {
			case <-time.After(tryPause):
			case <-ctx.Done():
				return
			}
		}
		d.post(ctx, func() {
			d.edges.way(peer).tried(best)
			delete(d.edges.said, peer) // to be told even if it is what was told before: it was asked for
		})
	})
}

// endEdges tells the launcher what this host knows of its ways, when it is over.
func (d *daemon) endEdges() {
	if d.roster == nil || d.began == 0 {
		return
	}
	d.lookAtLinks(d.memberIDs())
	if edges := d.edges.list(len(d.roster.Peers)); len(edges) > 0 {
		d.out.Write(&wire.Edges{Edges: edges})
	}
}
