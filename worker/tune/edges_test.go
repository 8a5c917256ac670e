package tune

import (
	"math"
	"slices"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

func TestCarried(t *testing.T) {
	var c carried
	at := func(rtt time.Duration, mb uint64, busy time.Duration) {
		c.look(link.Status{RTT: rtt, BusyBytes: mb << 20, BusyTime: busy})
	}
	at(90*time.Microsecond, 0, 0)
	at(50*time.Microsecond, 1, time.Millisecond)
	at(70*time.Microsecond, 1, time.Millisecond)
	if c.edge.RTT < 50e-6 || c.edge.RTT > 52e-6 || c.edge.Bandwidth != 0 {
		t.Errorf("after too little traffic: %+v", c.edge)
	}
	c.tried(2e9)
	if !c.edge.Tried || c.edge.Bandwidth != 2e9 {
		t.Errorf("after a probe: %+v", c.edge)
	}
	at(0, 101, 101*time.Millisecond)
	is := func(want float64) bool { return math.Abs(c.edge.Bandwidth/want-1) < 0.05 }
	if !is(1000<<20) || c.edge.Tried {
		t.Errorf("after 100 MiB in 100 ms: %+v", c.edge)
	}
	c.tried(9e9) // no one uses the edge any more, or it would not be tried
	if !c.edge.Tried || c.edge.Bandwidth != 9e9 {
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
		doubts := c.look(link.Status{BusyBytes: bytes, BusyTime: c.seen.BusyTime + 100*time.Second})
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

// TestDoubt: a edge that the ring does not go is tried before the ring goes there, whatever was known of it, and
// again when the result is old.
func TestDoubt(t *testing.T) {
	w := newEdgeWatch()
	pair := topology.Pair{From: 2, To: 3}
	w.hear(2, []wire.Edge{{To: 3, Bandwidth: 1e9, RTT: 5e-5}})
	now := time.Unix(1000, 0)
	want := func(what string, after time.Duration, ask, known bool) {
		t.Helper()
		now = now.Add(after)
		if a, k := w.doubt(pair, now); a != ask || k != known {
			t.Errorf("%s: ask %v, known %v; want %v, %v", what, a, k, ask, known)
		}
	}
	want("at first", 0, true, false)
	if e := w.all[pair]; e.Bandwidth != 0 || e.RTT != 5e-5 {
		t.Errorf("what was known remains: %+v", e)
	}
	want("while it is tried", 5*time.Second, false, false)
	w.hear(2, []wire.Edge{{To: 3, Bandwidth: 1e9, Tried: true}})
	want("with the result", 5*time.Second, false, true)
	want("when that is old", triedFor, true, false)
}

// TestHeard: whatever changes what is known of edges is counted, so that it is asked again whether another ring pays,
// and what is reported once more is not.
func TestHeard(t *testing.T) {
	w := newEdgeWatch()
	pair, edges := topology.Pair{From: 2, To: 3}, []wire.Edge{{To: 3, Bandwidth: 1e9, RTT: 5e-5}, {To: 4, RTT: 6e-5}}
	for _, step := range []struct {
		what string
		do   func()
		news bool
	}{
		{"edges", func() { w.hear(2, edges) }, true},
		{"the same again", func() { w.hear(2, edges) }, false},
		{"a way is to be tried", func() { w.doubt(pair, time.Unix(1000, 0)) }, true},
		{"it is being tried", func() { w.doubt(pair, time.Unix(1005, 0)) }, false},
		{"the result", func() { w.hear(2, []wire.Edge{{To: 3, Bandwidth: 2e9, Tried: true}}) }, true},
		{"a host has other NICs", func() { w.forgetHost(3) }, true},
		{"edges from nothing", func() { w.hear(2, edges[:1]) }, true},
		{"and again", func() { w.hear(2, edges) }, false},
	} {
		before := w.heard
		if step.do(); (w.heard != before) != step.news {
			t.Errorf("%s: counted %d after %d, news %v", step.what, w.heard, before, step.news)
		}
	}
}

func TestPlaces(t *testing.T) {
	if got, want := places([]int{9, 2, 7, 4}, []int{4, 7, 8, 9}), []int{3, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: 2 is lost, and 8 is new", got, want)
	}
	if got := places(nil, []int{0, 1}); len(got) != 0 {
		t.Errorf("%v of no ring", got)
	}
}

// TestRingOfThoseLeft: when a host is lost and another one comes, the ring is what is left of it and the new one,
// unless another one pays.
func TestRingOfThoseLeft(t *testing.T) {
	left := places([]int{0, 6, 4, 2, 5}, []int{0, 2, 5, 6, 7}) // 4 is lost, 7 is new
	ring := func(by topology.By, hosts []topology.Host, edges []topology.Edge) []int {
		return ringTask{by: by, left: left}.oneRing(t.Context(), hosts, edges).Order
	}
	hosts := make([]topology.Host, 5)
	edges := func(slowFrom, slowTo int) (edges []topology.Edge) {
		for from := range hosts {
			for to := range hosts {
				bandwidth, rtt := 1e9, 1e-4
				if to == (from+1)%len(hosts) { // from nothing, this would be the ring
					bandwidth, rtt = 1.05e9, 1e-5
				}
				if from == slowFrom && to == slowTo {
					bandwidth /= 9
				}
				edges = append(edges, topology.Edge{From: from, To: to, RTT: rtt, Bandwidth: bandwidth})
			}
		}
		return edges
	}
	if got, want := ring(topology.ByMeasured, hosts, edges(-1, -1)), []int{0, 3, 1, 2}; !slices.Equal(slices.DeleteFunc(slices.Clone(got), func(at int) bool { return at == 4 }), want) || len(got) != 5 {
		t.Errorf("%v, want %v with 4 somewhere", got, want)
	}
	got := ring(topology.ByMeasured, hosts, edges(3, 1)) // the edge from the one neighbour of the lost host to the other
	if at := slices.Index(got, 3); len(got) != 5 || got[(at+1)%5] == 1 {
		t.Errorf("%v goes over the slow way from 3 to 1", got)
	}
	nothing := ring(topology.ByTopology, hosts, nil)
	if want := []int{0, 1, 2, 3, 4}; !slices.Equal(nothing, want) {
		t.Errorf("%v, want %v, whatever the ring was", nothing, want)
	}
	left = nil
	if first := ring(topology.ByMeasured, hosts, nil); !slices.Equal(first, nothing) {
		t.Errorf("%v at first, want %v", first, nothing)
	}
}

func TestNewEdges(t *testing.T) {
	got := newEdges([]int{0, 1, 2, 3}, []int{0, 2, 1, 3})
	if want := []topology.Pair{{From: 0, To: 2}, {From: 2, To: 1}, {From: 1, To: 3}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: the way back is another one", got, want)
	}
}

// TestLeftRail: it is the network that a host has left that is named, and another NIC is none of a ring's business.
func TestLeftRail(t *testing.T) {
	nic := func(address string, up bool) topology.NIC { return topology.NIC{Up: up, Addrs: []string{address}} }
	hosts := []topology.Host{
		{NICs: []topology.NIC{nic("10.0.0.1/24", true), nic("10.1.0.1/24", true)}},
		{NICs: []topology.NIC{nic("10.1.0.2/24", true), nic("10.0.0.2/24", true), nic("10.2.0.2/24", true)}},
	}
	rings := []wire.RailRing{{Rail: "10.0.0.0/24"}, {Rail: "10.1.0.0/24"}}
	if rail, left := leftRail(hosts, rings); left {
		t.Errorf("a host has left %s, where all are", rail)
	}
	hosts[1].NICs[0].Up = false
	if rail, left := leftRail(hosts, rings); rail != "10.1.0.0/24" || !left {
		t.Errorf("a host has left %q, %v", rail, left)
	}
}

func TestEdgeNews(t *testing.T) {
	w := newEdgeWatch()
	w.to(2).edge.RTT, w.to(1).edge.RTT, w.to(3).edge = 60e-6, 50e-6, wire.Edge{To: 3}
	if news := w.news(4); len(news) != 2 || news[0].To != 1 || news[1].To != 2 {
		t.Errorf("at first: %+v", news)
	}
	w.to(1).edge.RTT = 49e-6
	if news := w.news(4); len(news) != 0 {
		t.Errorf("after next to no change: %+v", news)
	}
	w.to(1).edge.RTT, w.to(2).edge.Bandwidth = 10e-6, 1e9
	if news := w.news(4); len(news) != 2 || news[1].Bandwidth != 1e9 {
		t.Errorf("after a change: %+v", news)
	}

	// Of many hosts only the nearest ones, and the ones that data goes to.
	for peer := range 100 {
		w.to(peer).edge = wire.Edge{To: peer, RTT: float64(200-peer) * 1e-6}
	}
	w.to(5).edge.Bandwidth = 1e9
	list := w.list(100)
	if len(list) != nearHosts+1 || list[0].To != 5 || list[1].To != 100-nearHosts {
		t.Errorf("%d of 100: %+v", len(list), list)
	}

	w.hear(7, []wire.Edge{{To: 9, RTT: 1e-6}, {To: 8, Bandwidth: 5}})
	w.hear(9, []wire.Edge{{To: 7, Bandwidth: 6}, {To: 12, Bandwidth: 7}})
	want := []topology.Edge{{From: 0, To: 1, RTT: 1e-6}, {From: 1, To: 0, Bandwidth: 6, InJob: true}}
	if got := w.between([]int{7, 9}); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v, should be %+v", got, want)
	}
}

// TestForget: after a move neither what was measured before counts, nor what links counted until then.
func TestForget(t *testing.T) {
	d := New(Config{Job: &wire.Job{HostID: 1}})
	w := &d.edges
	w.to(2).look(link.Status{RTT: 50 * time.Microsecond, BusyBytes: 1 << 30, BusyTime: time.Second})
	w.to(3).tried(1e9)
	w.hear(d.job.HostID, w.news(4))
	w.hear(2, []wire.Edge{{To: 1, Bandwidth: 1e9}, {To: 3, Bandwidth: 1e9}})
	for _, to := range []int{1, 3} {
		w.asked[topology.Pair{From: 2, To: to}] = time.Unix(1000, 0)
	}
	if len(w.all) != 4 || len(w.said) != 2 {
		t.Fatalf("%+v", w)
	}
	d.ForgetOwn()
	between := topology.Pair{From: 2, To: 3}
	if len(w.list(4)) != 0 || len(w.said) != 0 || len(w.all) != 1 || w.all[between].Bandwidth == 0 || len(w.asked) != 1 || w.asked[between].IsZero() {
		t.Errorf("after a move: %+v", w)
	}
	w.to(2).look(link.Status{RTT: 500 * time.Microsecond, BusyBytes: 1<<30 + 1, BusyTime: time.Second + time.Microsecond})
	if e := w.to(2).edge; e.Bandwidth != 0 || e.RTT != 500e-6 {
		t.Errorf("traffic from before the move counts: %+v", e)
	}
	w.to(3).tried(5e8)
	if e := w.to(3).edge; e.Bandwidth != 5e8 || !e.Tried {
		t.Errorf("after another try: %+v", e)
	}

	// Another host has moved.
	w.forgetTo(3)
	w.forgetHost(3)
	if e := w.to(3).edge; e.Bandwidth != 0 || len(w.all) != 0 || w.to(2).edge.RTT != 500e-6 {
		t.Errorf("after a move of host 3: %+v", w)
	}
}
