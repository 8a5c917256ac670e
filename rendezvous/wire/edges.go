package wire

// What daemons measure of the edges between their hosts.

// Edge has the measurements of the edge from the sender's host to another.
type Edge struct {
	To        int     `msgpack:"to"`    // host id
	RTT       float64 `msgpack:"rtt"`   // seconds, 0 unknown
	Bandwidth float64 `msgpack:"bw"`    // bytes per second, 0 unknown
	Tried     bool    `msgpack:"tried"` // a probe measured the bandwidth, not the job's own traffic
}

// Edges has new measurements of the sender's edges for the coordinator while the job runs, and all of them for the
// launcher when it ends. It may get lost; measurements are sent again some time later.
type Edges struct {
	Edges []Edge `msgpack:"edges"`
}

// Try asks a daemon to measure the edge to another host, because the job does not use it.
type Try struct {
	To int `msgpack:"to"`
}

func (*Edges) kind() byte { return 40 }
func (*Try) kind() byte   { return 41 }
