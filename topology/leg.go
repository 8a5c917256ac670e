package topology

// Leg is an edge of a ring with everything known about it, for display.
type Leg struct {
	From, To  int     // indices into the host list
	Bandwidth float64 // bytes per second, 0 unknown
	Source    string  // of Bandwidth: "measured", "job", "nic" (the slower host's interface), "nominal", "file", "unknown"
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
	bottleneck := p.bottleneck(r.Order)
	for i, from := range r.Order {
		to := r.Order[(i+1)%len(r.Order)]
		at := from*p.n + to
		legs[i] = Leg{From: from, To: to, Source: sources[p.known[at]].name, RTT: p.rtt[at], Why: r.Why[i],
			Slowest: p.edges[at].speed == bottleneck}
		if p.known[at] > blocked {
			legs[i].Bandwidth = p.edges[at].speed
		}
	}
	return legs
}
