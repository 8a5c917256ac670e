package link_test

import (
	"testing"
	"time"
)

// TestAwaited: of a peer that has everything nothing is awaited; of one that was never reached nothing came, and of one on the other
// side of a broken way nothing comes any more.
func TestAwaited(t *testing.T) {
	nodes := []*node{newNode(t, 0, unheard), newNode(t, 1, unheard)}
	p := newProxy(t, nodes[1].addr(), nil)
	nodes[0].reach(1, p.ln.Addr().String())
	nodes[1].reach(0, "127.0.0.1:1")
	join(t, nodes...)
	mesh, out := nodes[0].mesh, &outbox{t: t}
	if err := mesh.Open([]int{9}); err != nil {
		t.Fatal(err)
	}
	idle := func() bool { _, waits := mesh.Awaited()[1]; return !waits }

	out.send(mesh, 9, 1, 1)
	if at, waits := mesh.Awaited()[9]; !waits || !at.IsZero() {
		t.Errorf("of a peer that was never reached: %v, %v", at, waits)
	}
	out.send(mesh, 1, 2, 1)
	eventually(t, "an acknowledgement", idle)

	p.ln.Close() // there is no other way
	p.freeze()
	out.send(mesh, 1, 4, 100_000)
	eventually(t, "silence", func() bool {
		first, waits := mesh.Awaited()[1]
		time.Sleep(200 * time.Millisecond)
		return waits && !first.IsZero() && mesh.Awaited()[1].Equal(first)
	})
}
