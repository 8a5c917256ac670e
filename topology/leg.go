package topology

import "math"

// Leg is an edge of a ring with everything known about it, for display.
type Leg struct {
	From, To  int     // indices into the host list
	Bandwidth float64 // bytes per second, 0 unknown
	Measured  bool    // otherwise Bandwidth is the speed of the slower host's interface
	Nominal   bool    // that speed is nominal
	Given     bool    // the topology file gives that speed
	InJob     bool    // measured by a job, on its own traffic
	RTT       float64 // seconds, 0 unknown
	Slowest   bool    // it limits the ring; not set if all edges are alike but for noise
	Why       string
}

// Legs returns the edges of the ring in order. Hosts and edges must be the ones the ring was made from.
func (r Ring) Legs(hosts []Host, edges []Edge) []Leg {
	if len(r.Order) < 2 || len(r.Why) != len(r.Order) {
		return nil
	}
	p := newProblem(hosts, edges)
	legs := make([]Leg, len(r.Order))
	slowest, fastest := math.Inf(1), 0.0
	for i, from := range r.Order {
		to := r.Order[(i+1)%len(r.Order)]
		at := from*p.n + to
		legs[i] = Leg{From: from, To: to, Measured: p.known[at].fact(), Nominal: p.known[at] == nominal, Given: p.known[at] == byFile, InJob: p.known[at] == inJob, RTT: p.rtt[at], Why: r.Why[i]}
		if p.known[at] > blocked {
			legs[i].Bandwidth = p.edges[at].speed
		}
		if p.known[at] != blocked { // the speed of a blocked edge is unknown
			slowest, fastest = min(slowest, p.edges[at].speed), max(fastest, p.edges[at].speed)
		}
	}
	for i, leg := range legs {
		legs[i].Slowest = stands(slowest, fastest) && p.edges[leg.From*p.n+leg.To].speed == slowest
	}
	return legs
}
