package link_test

import (
	"context"
	"net"
	"slices"
	"testing"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// unheard has nothing heard of peer 9.
func unheard(c *link.Config) {
	dial := c.Dial
	c.Dial = func(ctx context.Context, peer, stream int) (net.Conn, error) {
		if peer == 9 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, peer, stream)
	}
}

// TestHungUp: a peer that ends, and one that never listened, differ from one that nothing is heard of, and from one
// whose streams were only broken.
func TestHungUp(t *testing.T) {
	nodes := newNodes(t, 3, unheard)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	gone.Close()
	nodes[0].reach(8, gone.Addr().String())
	must.Do(t, nodes[0].mesh.Open([]int{8, 9}))
	out := &outbox{t: t}
	out.send(nodes[0].mesh, 8, 1, 1)
	out.send(nodes[0].mesh, 9, 2, 1)
	hungUp := func() []int { return slices.Sorted(slices.Values(nodes[0].mesh.HungUp())) }
	must.Soon(t, "the refusal", func() bool { return slices.Equal(hungUp(), []int{8}) })
	nodes[1].stop()
	must.Soon(t, "the end of a peer", func() bool { return slices.Equal(hungUp(), []int{1, 8}) })
	before := nodes[0].status(2)
	nodes[2].ln.closeAll() // of connections, not of the peer
	must.Soon(t, "other streams", func() bool {
		now := nodes[0].status(2)
		return now.Attached >= before.Attached+4 && slices.Equal(hungUp(), []int{1, 8})
	})
}
