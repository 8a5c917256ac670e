package link_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// opened returns nodes whose links have no streams.
func opened(t *testing.T, n int) []*node {
	nodes := apart(t, n, nil)
	for _, a := range nodes {
		var peers []int
		for _, b := range nodes {
			if a != b {
				peers = append(peers, b.id)
			}
		}
		must.Do(t, a.mesh.Open(peers))
	}
	return nodes
}

func streams(n *node, peer int) int {
	s := n.status(peer)
	return s.Streams
}

// TestStreamsComeWithTraffic: an open link has no stream until something is sent, from whichever side, one while
// little is sent, and all of them when it is much.
func TestStreamsComeWithTraffic(t *testing.T) {
	for from := range 2 {
		nodes := opened(t, 3)
		to := 1 - from
		out := &outbox{t: t}
		op := uint64(0)
		send := func(n int) {
			t.Helper()
			op++
			out.send(nodes[from].mesh, to, op, n)
			must.Soon(t, "acknowledged", func() bool { return out.acked.Load() == int64(op) })
		}
		send(100)
		send(64 << 10)
		if a, b := streams(nodes[from], to), streams(nodes[to], from); a != 1 || b != 1 {
			t.Errorf("from host %d: %d and %d streams carry little, want one", from, a, b)
		}
		for range 20 {
			send(200 << 10)
		}
		must.Soon(t, "all streams", func() bool { return streams(nodes[from], to) == 4 && streams(nodes[to], from) == 4 })
		for _, n := range nodes[:2] {
			if n := streams(n, 2); n != 0 {
				t.Errorf("%d streams to a host that nobody spoke to", n)
			}
		}
		if s := nodes[from].status(2); s.Err != nil {
			t.Errorf("a link that nobody used has the error %v", s.Err)
		}
	}
}

// TestBothSidesSpeakAtOnce: every host sends to every other over links without streams, as in the first negotiation
// of a large world; each segment arrives once.
func TestBothSidesSpeakAtOnce(t *testing.T) {
	const n, count = 12, 5
	nodes := opened(t, n)
	out := &outbox{t: t}
	var wg sync.WaitGroup
	for _, a := range nodes {
		wg.Go(func() {
			for op := range uint64(count) {
				for _, b := range nodes {
					if a != b {
						out.send(a.mesh, b.id, op, 200)
					}
				}
			}
		})
	}
	wg.Wait()
	must.Soon(t, "all acknowledged", func() bool { return out.acked.Load() == n*(n-1)*count })
	for _, a := range nodes {
		if got := a.inbox.delivered.Load(); got != (n-1)*count {
			t.Errorf("host %d got %d segments, want %d", a.id, got, (n-1)*count)
		}
	}
}

// TestReach opens one stream, which comes back when it breaks; Connect opens the others.
func TestReach(t *testing.T) {
	nodes := opened(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	both := func(f func(m *link.Mesh, peers []int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i, n := range nodes {
			wg.Go(func() {
				if err := f(n.mesh, []int{1 - i}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	both(func(m *link.Mesh, peers []int) error { return m.Reach(ctx, peers) })
	if a, b := streams(nodes[0], 1), streams(nodes[1], 0); a != 1 || b != 1 {
		t.Fatalf("%d and %d streams, want one", a, b)
	}
	for _, n := range nodes {
		if c := n.ln.pick(0); c != nil {
			c.Close()
		}
	}
	out := &outbox{t: t}
	out.send(nodes[1].mesh, 0, 1, 5000)
	must.Soon(t, "acknowledged over another stream", func() bool { return out.acked.Load() == 1 })
	both(func(m *link.Mesh, peers []int) error { return m.Connect(ctx, peers) })
	must.Soon(t, "all streams", func() bool { return streams(nodes[0], 1) == 4 && streams(nodes[1], 0) == 4 })
}

// TestNarrowLinksSurviveFlaps: streams break at random while links widen; every segment arrives once.
func TestNarrowLinksSurviveFlaps(t *testing.T) {
	nodes := opened(t, 2)
	out := &outbox{t: t, limit: make(chan struct{}, 64)}
	const count = 400
	stop := make(chan struct{})
	var breaker sync.WaitGroup
	breaker.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				if c := nodes[i%2].ln.pick(i); c != nil {
					c.Close()
				}
			case <-stop:
				return
			}
		}
	})
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			for op := range uint64(count) {
				out.send(n.mesh, 1-i, op, length(op))
			}
		})
	}
	wg.Wait()
	must.Soon(t, "all acknowledged", func() bool { return out.acked.Load() == 2*count })
	close(stop)
	breaker.Wait()
}
