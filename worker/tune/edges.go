package tune

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/wire"
)

const (
	// enoughBytes and enoughTime are what it takes to speak of a bandwidth.
	enoughBytes, enoughTime = 4 << 20, 5 * time.Millisecond
	// fading is what remains of a measurement when there is another second of traffic: networks change.
	fading = 0.9
	// rising is the factor by which the known round trip may grow with every look. It keeps the shortest one, which may
	// be chance, for a while; after a move all may be longer.
	rising = 1.02
	// manyHosts is from how many hosts on only round trips to the nearest are reported.
	manyHosts, nearHosts = 64, 8
	// tries is how often an edge whose traffic is doubtful is measured: traffic of the job may disturb some attempts.
	tries = 3
	// triedFor is how long the result of that counts.
	triedFor = time.Minute
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
	c.edge.Bandwidth = bandwidth
	return false
}

// tried takes what a probe found; what was known of the edge before is old.
func (c *carried) tried(bandwidth float64) {
	c.bytes, c.time, c.slow = 0, 0, bandwidth > 0 && bandwidth < c.least
	c.edge.Bandwidth = bandwidth
}

// edges is what is known of the edges from this host, by peer.
type edges map[int]*carried

// to returns what is known of the edge to a peer.
func (e edges) to(peer int) *carried {
	if e[peer] == nil {
		e[peer] = &carried{edge: wire.Edge{To: peer}}
	}
	return e[peer]
}

// list returns what is known of this host's edges in the order of the peers: all of them, or among many peers
// the edges that carry data and the edges to the nearest.
func (e edges) list(peers int) []wire.Edge {
	var out []wire.Edge
	for _, peer := range slices.Sorted(maps.Keys(e)) {
		if e := e[peer].edge; e.RTT > 0 || e.Bandwidth > 0 {
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

// forget drops what is known of the edge to a peer. What links have counted until now stays seen, or else it would be
// taken for traffic of the new edge.
func (e edges) forget(peer int) {
	if c := e[peer]; c != nil {
		e[peer] = &carried{seen: c.seen, edge: wire.Edge{To: peer}}
	}
}
