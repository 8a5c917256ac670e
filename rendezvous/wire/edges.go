package wire

// What the ways between hosts are like, as their daemons find out.

// Edge is the way from the sender's host to another.
type Edge struct {
	To        int     `msgpack:"to"`    // host id
	RTT       float64 `msgpack:"rtt"`   // seconds, 0 unknown
	Bandwidth float64 `msgpack:"bw"`    // bytes per second, 0 unknown
	Tried     bool    `msgpack:"tried"` // the bandwidth is that of a probe, not of the job's own traffic
}

// Edges tells what is new of the sender's ways: to the daemon that coordinates while the job runs, to the launcher, of all
// of them, when it is over. It may get lost; what it says is said again some time.
type Edges struct {
	Edges []Edge `msgpack:"edges"`
}

// Try asks a daemon to measure the way to another host, because the job does not use it.
type Try struct {
	To int `msgpack:"to"`
}

func (*Edges) kind() byte { return 40 }
func (*Try) kind() byte   { return 41 }
