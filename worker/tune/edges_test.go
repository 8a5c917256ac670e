package tune

import (
	"math"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/wire"
	"gorun/worker/loop"
)

func TestCarried(t *testing.T) {
	var c carried
	at := func(rtt time.Duration, mb uint64, busy time.Duration) {
		c.look(link.Status{RTT: rtt, Totals: link.Totals{BusyBytes: mb << 20, BusyTime: busy}})
	}
	at(90*time.Microsecond, 0, 0)
	at(50*time.Microsecond, 1, time.Millisecond)
	at(70*time.Microsecond, 1, time.Millisecond)
	if c.edge.RTT < 50e-6 || c.edge.RTT > 52e-6 || c.edge.Bandwidth != 0 {
		t.Errorf("after too little traffic: %+v", c.edge)
	}
	c.tried(2e9)
	if c.edge.Bandwidth != 2e9 {
		t.Errorf("after a probe: %+v", c.edge)
	}
	at(0, 101, 101*time.Millisecond)
	is := func(want float64) bool { return math.Abs(c.edge.Bandwidth/want-1) < 0.05 }
	if !is(1000 << 20) {
		t.Errorf("after 100 MiB in 100 ms: %+v", c.edge)
	}
	c.tried(9e9) // no one uses the edge any more, or it would not be tried
	if c.edge.Bandwidth != 9e9 {
		t.Errorf("after another probe: %+v", c.edge)
	}
	mb, busy := uint64(101), 101*time.Millisecond
	for range 50 { // the network becomes slower
		mb, busy = mb+100, busy+time.Second
		at(0, mb, busy)
	}
	if !is(100 << 20) {
		t.Errorf("after 50 s at 100 MiB/s: %+v", c.edge)
	}
	for range 50 { // the edge becomes longer
		at(90*time.Microsecond, mb, busy)
	}
	if c.edge.RTT != 90e-6 {
		t.Errorf("after 50 s with 90 µs: %+v", c.edge)
	}
	at(40*time.Microsecond, 100, 100*time.Millisecond) // of another link to the same host
	if c.edge.Bandwidth < 100<<20 || c.edge.RTT != 40e-6 {
		t.Errorf("after a new link: %+v", c.edge)
	}
}

// TestDoubtful: traffic that shows a small part of what the NICs could carry counts only if a try finds as little.
// Between tries what the last one found stays.
func TestDoubtful(t *testing.T) {
	c := carried{least: 30e6}
	var bytes uint64
	look := func(rate uint64, want float64, doubt bool) {
		t.Helper()
		bytes += 100 * rate
		doubts := c.look(link.Status{Totals: link.Totals{BusyBytes: bytes, BusyTime: c.seen.BusyTime + 100*time.Second}})
		if got := c.edge.Bandwidth; math.Abs(got-want) > 0.05*want || doubts != doubt {
			t.Errorf("at %d bytes per second: %g, should be %g; doubt: %v", rate, got, want, doubts)
		}
	}
	look(1e6, 0, true)
	c.tried(1e9)
	look(1e6, 1e9, true)
	c.tried(0) // no answer is no evidence
	look(1e6, 0, true)
	c.tried(2e6)
	look(1e6, 1e6, false)
	c.bytes, c.time = 0, 0
	look(100e6, 100e6, false) // it is fast again
	c.bytes, c.time = 0, 0
	look(1e6, 100e6, true)
}

// TestList: of many hosts only the nearest ones are listed, and the ones that data goes to.
func TestList(t *testing.T) {
	known := edges{}
	known.to(2).edge.RTT, known.to(1).edge.RTT, known.to(3).edge = 60e-6, 50e-6, wire.Edge{To: 3}
	if list := known.list(4); len(list) != 2 || list[0].To != 1 || list[1].To != 2 {
		t.Errorf("of few: %+v", list)
	}
	for peer := range 100 {
		known.to(peer).edge = wire.Edge{To: peer, RTT: float64(200-peer) * 1e-6}
	}
	known.to(5).edge.Bandwidth = 1e9
	if list := known.list(100); len(list) != nearHosts+1 || list[0].To != 5 || list[1].To != 100-nearHosts {
		t.Errorf("%d of 100: %+v", len(list), list)
	}
}

// TestForget: after a move neither what was measured before counts, nor what links counted until then.
func TestForget(t *testing.T) {
	d := New(Config{Component: loop.Component{Job: &wire.Job{HostID: 1}}})
	d.edges.to(2).look(link.Status{RTT: 50 * time.Microsecond, Totals: link.Totals{BusyBytes: 1 << 30, BusyTime: time.Second}})
	d.edges.to(3).tried(1e9)
	if len(d.edges.list(4)) != 2 {
		t.Fatalf("%+v", d.edges)
	}
	d.ForgetOwn()
	if list := d.edges.list(4); len(list) != 0 {
		t.Errorf("after a move: %+v", list)
	}
	d.edges.to(2).look(link.Status{RTT: 500 * time.Microsecond, Totals: link.Totals{BusyBytes: 1<<30 + 1, BusyTime: time.Second + time.Microsecond}})
	if e := d.edges.to(2).edge; e.Bandwidth != 0 || e.RTT != 500e-6 {
		t.Errorf("traffic from before the move counts: %+v", e)
	}
	d.edges.to(3).tried(5e8)
	d.ForgetPeer(3)
	if e := d.edges.to(3).edge; e.Bandwidth != 0 || d.edges.to(2).edge.RTT != 500e-6 {
		t.Errorf("after a move of host 3: %+v", d.edges)
	}
}
