package link_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"gorun/collective/link"
	"gorun/contrib/must"
)

func TestRestartedPeerIsLost(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	out := &outbox{t: t}
	nodes[1].stop()
	out.send(nodes[0].mesh, 1, 2, 100_000) // never acknowledged by the new one
	again := newNode(t, 1, nil)
	again.reach(0, nodes[0].addr())
	nodes[0].reach(1, again.addr())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- again.mesh.Connect(ctx, []int{0}) }()
	if err := <-nodes[0].lost; !errors.Is(err, link.ErrRestarted) || !strings.Contains(err.Error(), "host 1") {
		t.Errorf("lost: %v", err)
	}
	nodes[0].mesh.Forget(1)
	if err := nodes[0].mesh.Connect(ctx, []int{1}); err != nil {
		t.Error(err)
	}
	if err := <-connected; err != nil {
		t.Error(err)
	}
	out.send(nodes[0].mesh, 1, 3, 100_000)
	must.Soon(t, "delivery", func() bool { return again.inbox.delivered.Load() == 1 })
	must.Soon(t, "acknowledgement", func() bool { return out.acked.Load() == 1 })
}

// When the world changes, every host forgets and connects again, each in its own time.
func TestReopenedLinks(t *testing.T) {
	for round := range 10 {
		nodes := newNodes(t, 2, nil)
		first := round % 2
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for i := range 5 {
			var wg sync.WaitGroup
			a, b := nodes[first], nodes[1-first]
			a.mesh.Forget(b.id)
			wg.Go(func() {
				if err := a.mesh.Connect(ctx, []int{b.id}); err != nil {
					t.Error(err)
				}
			})
			if i%2 == 0 { // otherwise at about the same time
				if err := <-b.lost; !errors.Is(err, link.ErrReopened) {
					t.Errorf("lost: %v", err)
				}
			}
			b.mesh.Forget(a.id)
			if err := b.mesh.Connect(ctx, []int{a.id}); err != nil {
				t.Error(err)
			}
			wg.Wait()
			for len(b.lost) > 0 {
				<-b.lost
			}
			if len(a.lost) > 0 {
				t.Fatalf("round %d: host %d lost a link that was new: %v", round, a.id, <-a.lost)
			}
		}
		for _, n := range nodes {
			n.stop()
		}
	}
}

func TestForgetReleasesMemory(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	tr := startTraffic(t, nodes, length)
	must.Soon(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > 50 })
	tr.stop.Store(true)
	nodes[0].mesh.Forget(1)
	// Senders must not wait for room that never comes.
	acked, delivered := tr.outs[0].acked.Load(), nodes[0].inbox.delivered.Load()
	placed := nodes[0].inbox.placed.Load()
	nodes[1].mesh.Forget(0)
	if tr.outs[0].acked.Load() != acked || nodes[0].inbox.delivered.Load() != delivered || nodes[0].inbox.placed.Load() != placed {
		t.Error("something went on after Forget")
	}
	for _, out := range tr.outs {
		for len(out.limit) > 0 {
			<-out.limit
		}
	}
	tr.wg.Wait()
}

func TestUpDown(t *testing.T) {
	for range 30 {
		nodes := newNodes(t, 2, func(c *link.Config) { c.Streams = 2 })
		out := &outbox{t: t}
		for op := range uint64(5) {
			out.send(nodes[0].mesh, 1, op, length(op))
		}
		for _, n := range nodes {
			n.stop()
		}
	}
}
