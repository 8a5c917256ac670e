package tune

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

const (
	// reconsiderEvery is how often the coordinator asks whether another ring pays.
	reconsiderEvery = 5 * time.Second
	// changeEvery is how long a ring stays at least.
	changeEvery = time.Minute
	// enoughBytes and enoughTime are what it takes to speak of a bandwidth.
	enoughBytes, enoughTime = 4 << 20, 5 * time.Millisecond
	// fading is what remains of a measurement when there is another second of traffic: networks change.
	fading = 0.9
	// rising is the factor by which the known round trip may grow with every look. It keeps the shortest one, which may
	// be chance, for a while; after a move all may be longer.
	rising = 1.02
	// newsworthy is how much a number has to change to be reported again.
	newsworthy = 0.2
	// manyHosts is from how many hosts on only round trips to the nearest are reported.
	manyHosts, nearHosts = 64, 8
	mostTold             = 1 << 12
	// tries is how often an edge that no ring uses is measured: traffic of the job may disturb some of the attempts.
	tries = 3
	// triedFor is how long the result of that counts.
	triedFor = time.Minute
	// sayAgain is after how many seconds all is reported again.
	sayAgain = 64
	tryPause = 300 * time.Millisecond
	// tryTimeout is how long an attempt may take, for which a megabyte travels.
	tryTimeout = 5 * time.Second
	// doubtful is the part of a NIC's speed below which traffic counts only once a try has found as little.
	doubtful = 0.03
)

// carried is what is known of one edge from this host.
type carried struct {
	seen  link.Status // what the counters showed last
	bytes float64     // while the edge was busy; the last seconds weigh more than earlier ones
	time  float64     // seconds that took
	edge  wire.Edge

	least float64   // bandwidth that is not doubtful
	slow  bool      // a try has found less
	asked time.Time // when doubts were last tried
}

// look takes what the link reports now. It returns true if what that shows is doubtful, and does not count.
func (c *carried) look(s link.Status) (doubt bool) {
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
		return false
	}
	c.bytes, c.time = c.bytes*fading+float64(bytes), c.time*fading+busy.Seconds()
	if c.bytes < enoughBytes || c.time < enoughTime.Seconds() {
		return false
	}
	bandwidth := c.bytes / c.time
	if c.slow = c.slow && bandwidth < c.least; bandwidth < c.least && !c.slow {
		return true
	}
	c.edge.Bandwidth, c.edge.Tried = bandwidth, false
	return false
}

// tried takes what a probe found; what was known of the edge before is old.
func (c *carried) tried(bandwidth float64) {
	c.bytes, c.time, c.slow = 0, 0, bandwidth > 0 && bandwidth < c.least
	c.edge.Bandwidth, c.edge.Tried = bandwidth, bandwidth > 0
}

// edgeWatch is what a daemon knows of edges. Only the daemon's loop touches it.
type edgeWatch struct {
	own   map[int]*carried            // of this host, by peer
	said  map[int]wire.Edge           // what the coordinator knows of them
	all   map[topology.Pair]wire.Edge // the coordinator's: of every host, by host ids
	asked map[topology.Pair]time.Time // when it requested a try of an edge that no ring used
	ticks int

	heard     int // how often something in all changed
	forgotten int // how often something of it was forgotten
}

func newEdgeWatch() edgeWatch {
	return edgeWatch{own: map[int]*carried{}, said: map[int]wire.Edge{}, all: map[topology.Pair]wire.Edge{},
		asked: map[topology.Pair]time.Time{}}
}

// to returns what is known of the edge to a peer.
func (w *edgeWatch) to(peer int) *carried {
	if w.own[peer] == nil {
		w.own[peer] = &carried{edge: wire.Edge{To: peer}}
	}
	return w.own[peer]
}

// news returns what differs from what the coordinator knows, and notes it as reported.
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

// list returns what is known of this host's edges in the order of the peers: all of them, or among many peers
// the edges that carry data and the edges to the nearest.
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

// hear takes what a host reports of its edges.
func (w *edgeWatch) hear(from int, edges []wire.Edge) {
	for _, e := range edges[:min(len(edges), mostTold)] {
		pair := topology.Pair{From: from, To: e.To}
		if w.all[pair] != e {
			w.all[pair] = e
			w.heard++
		}
	}
}

// between returns what is known of the edges between hosts of these ids, which ascend, by their places in the list.
func (w *edgeWatch) between(ids []int) []topology.Edge {
	var out []topology.Edge
	for pair, e := range w.all {
		from, isFrom := slices.BinarySearch(ids, pair.From)
		to, isTo := slices.BinarySearch(ids, pair.To)
		if isFrom && isTo {
			out = append(out, topology.Edge{From: from, To: to, RTT: e.RTT, Bandwidth: e.Bandwidth, InJob: e.Bandwidth > 0})
		}
	}
	slices.SortFunc(out, func(a, b topology.Edge) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	return out
}

// places is where hosts of a ring are among ids in ascending order, leaving out hosts that are not there.
func places(ring, ids []int) []int {
	return slices.DeleteFunc(formerPlaces(ring, ids), func(at int) bool { return at < 0 })
}

// formerPlaces is where hosts of a ring are among ids in ascending order, -1 for hosts that are not there.
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

// newEdges are the edges of another ring that the present one does not use. Old measurements of them are no reason to
// change: whatever made an edge of the present ring slow may have slowed others, first of all the same edge in the
// other direction.
func newEdges(present, other []int) []topology.Pair {
	edges := func(ring []int) []topology.Pair {
		var out []topology.Pair
		for i, from := range ring {
			out = append(out, topology.Pair{From: from, To: ring[(i+1)%len(ring)]})
		}
		return out
	}
	old := edges(present)
	return slices.DeleteFunc(edges(other), func(p topology.Pair) bool { return slices.Contains(old, p) })
}

// doubt reports whether to try an edge now that no ring uses, and whether the result of its latest try is known. Before
// a try it forgets the bandwidth that was known.
func (w *edgeWatch) doubt(pair topology.Pair, now time.Time) (ask, known bool) {
	if asked, ok := w.asked[pair]; ok && now.Sub(asked) < triedFor {
		return false, w.all[pair].Bandwidth > 0
	}
	w.asked[pair] = now
	w.all[pair] = wire.Edge{To: pair.To, RTT: w.all[pair].RTT}
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

// forget drops what is known of this host's edges, because its network is another one.
func (w *edgeWatch) forget() {
	for peer := range w.own {
		w.forgetTo(peer)
	}
}

// forgetTo drops what is known of this host's edge to a peer. What links have counted until now stays seen, or else it
// would be taken for traffic of the new edge.
func (w *edgeWatch) forgetTo(peer int) {
	if c := w.own[peer]; c != nil {
		w.own[peer] = &carried{seen: c.seen, edge: wire.Edge{To: peer}}
	}
	delete(w.said, peer)
}

// forgetHost drops what the coordinator knows of the edges from and to a host whose network is another one.
func (w *edgeWatch) forgetHost(host int) {
	about := func(pair topology.Pair) bool { return pair.From == host || pair.To == host }
	maps.DeleteFunc(w.all, func(pair topology.Pair, _ wire.Edge) bool { return about(pair) })
	maps.DeleteFunc(w.asked, func(pair topology.Pair, _ time.Time) bool { return about(pair) })
	w.heard++
	w.forgotten++
}
