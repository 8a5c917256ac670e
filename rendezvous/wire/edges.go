package wire

// What daemons measure of the edges between their hosts.

// Edge has the measurements of the edge from the sender's host to another.
type Edge struct {
	To        int     `msgpack:"to"`  // host id
	RTT       float64 `msgpack:"rtt"` // seconds, 0 unknown
	Bandwidth float64 `msgpack:"bw"`  // bytes per second, 0 unknown
}

// Edges has the measurements of the sender's edges, for the launcher when the job ends.
type Edges struct {
	Edges []Edge `msgpack:"edges"`
}

func (*Edges) kind() byte { return 40 }
