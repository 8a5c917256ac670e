package link_test

import (
	"sync"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// TestAwaited: of a peer that has everything nothing is awaited; of one that was never reached nothing came, and of
// one on the other side of a broken way nothing comes any more.
func TestAwaited(t *testing.T) {
	nodes, p := proxied(t, unheard, nil)
	join(t, nodes...)
	mesh, out := nodes[0].mesh, &outbox{t: t}
	must.Do(t, mesh.Open([]int{9}))
	idle := func() bool { _, waits := mesh.Awaited()[1]; return !waits }

	out.send(mesh, 9, 1, 1)
	if at, waits := mesh.Awaited()[9]; !waits || !at.IsZero() {
		t.Errorf("of a peer that was never reached: %v, %v", at, waits)
	}
	out.send(mesh, 1, 2, 1)
	must.Soon(t, "an acknowledgement", idle)

	p.ln.Close() // there is no other way
	p.freeze()
	out.send(mesh, 1, 4, 100_000)
	must.Soon(t, "silence", func() bool {
		first, waits := mesh.Awaited()[1]
		time.Sleep(200 * time.Millisecond)
		return waits && !first.IsZero() && mesh.Awaited()[1].Equal(first)
	})
}

// TestAwaitedReader: a peer that reads nothing for a while, because all it does is wait for something else, goes on to
// answer: it lets new streams in, if only so far that it is known to be there.
func TestAwaitedReader(t *testing.T) {
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.ProgressTimeout, c.HandshakeTimeout = 20*time.Millisecond, 200*time.Millisecond
	})
	waits := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(waits) })
	t.Cleanup(goOn)
	nodes[1].inbox.set(nil, func(int, link.Header, []byte) { <-waits })
	mesh, out, count := nodes[0].mesh, &outbox{t: t}, 100
	for op := range count {
		out.send(mesh, 1, uint64(op), 100_000)
	}
	last, answers := time.Time{}, 0
	must.Soon(t, "answers of a peer that does not read", func() bool {
		at, waits := mesh.Awaited()[1]
		if !waits {
			t.Fatal("it has acknowledged what it did not read")
		}
		if at.Sub(last) > 100*time.Millisecond { // not those of its kernel, that came first
			last = at
			answers++
		}
		return answers == 5
	})
	goOn()
	must.Soon(t, "the rest", func() bool { return out.acked.Load() == int64(count) })
	must.Soon(t, "the delivery of all", func() bool { return nodes[1].inbox.delivered.Load() >= int64(count) })
	if n := nodes[1].inbox.delivered.Load(); n != int64(count) {
		t.Errorf("%d of %d segments were delivered", n, count)
	}
}
