package link_test

import (
	"testing"
	"time"

	"gorun/contrib/must"
)

// A link's figures of the path to its peer agree with how long it took to send much over it.
func TestStatusTellsOfTheWay(t *testing.T) {
	nodes, _ := proxied(t, nil, func(int) time.Duration { return time.Millisecond })
	join(t, nodes...)
	nodes[0].full(1)
	const count, size = 300, 200_000
	out := &outbox{t: t}
	began := time.Now()
	for op := range uint64(count) {
		out.send(nodes[0].mesh, 1, op, size)
	}
	must.Soon(t, "all acknowledged", func() bool { return out.acked.Load() == count })
	whole := float64(count*size) / time.Since(began).Seconds()
	s := nodes[0].status(1)
	rate := float64(s.BusyBytes) / s.BusyTime.Seconds()
	t.Logf("%.0f MB/s of %d KB while it was busy, %.0f MB/s in all; round trip %v", rate/1e6, s.BusyBytes/1000, whole/1e6, s.RTT)
	if s.BusyBytes < count*size/2 || rate < 0.7*whole || rate > 1.5*whole {
		t.Errorf("busy with %d of %d bytes at %.0f bytes/s, in all %.0f", s.BusyBytes, count*size, rate, whole)
	}
	if s.RTT <= 0 || s.RTT > time.Second {
		t.Errorf("round trip %v", s.RTT)
	}
	if back := nodes[1].status(0); back.BusyBytes != 0 || back.BusyTime != 0 {
		t.Errorf("nothing was sent back, but %+v", back)
	}
}
