package link_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

func TestAddressChange(t *testing.T) {
	nodes := newNodes(t, 2, func(c *link.Config) { c.ProgressTimeout = 200 * time.Millisecond })
	tr := startTraffic(t, nodes, length)
	must.Soon(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > 100 })
	// Host 1 can no longer be reached where it was, and its streams are gone: it must come by itself.
	nodes[0].reach(1, "127.0.0.1:1")
	nodes[0].ln.closeAll()
	before := nodes[0].inbox.delivered.Load()
	must.Soon(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > before+100 })
	tr.finish(t, nodes)
}

func TestKick(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	tr := startTraffic(t, nodes, length)
	for i := range 12 {
		kicking := []int{i / 2 % 2}
		if i%2 == 1 { // both at once
			kicking = []int{0, 1}
		}
		var before [2]uint64
		for self := range nodes {
			s := nodes[self].status(1 - self)
			before[self] = s.Attached
		}
		for _, self := range kicking {
			nodes[self].mesh.Kick(1 - self)
		}
		for _, self := range kicking { // to the other side, one that has just come up there may be new enough
			must.Soon(t, "new streams", func() bool {
				s := nodes[self].status(1 - self)
				return s.Attached >= before[self]+4
			})
		}
	}
	tr.finish(t, nodes)
}

// TestRenew: only the streams with an address that is gone are replaced.
func TestRenew(t *testing.T) {
	// The other side, which loses the old stream first, may not take a slow machine for a failed attempt and dial too.
	nodes := newNodes(t, 2, func(c *link.Config) { c.FallbackDial = patience })
	tr := startTraffic(t, nodes, length)
	before := nodes[0].status(1)
	var gone string
	nodes[0].mesh.Renew(1, func(local, _ net.Addr) bool {
		if gone == "" {
			gone = local.String()
		}
		return local.String() == gone
	})
	must.Soon(t, "a new stream", func() bool {
		now := nodes[0].status(1)
		return now.Attached == before.Attached+1 && now.Streams == 4
	})
	tr.finish(t, nodes)
	if now := nodes[0].status(1); now.Attached != before.Attached+1 {
		t.Errorf("%d streams came up, want one", now.Attached-before.Attached)
	}
}

func TestKickAbandonsAHangingDial(t *testing.T) {
	hang := make(chan struct{}, 100)
	block := atomic.Bool{}
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.DialTimeout = time.Hour
		if dial := c.Dial; c.Self == 0 {
			c.Dial = func(ctx context.Context, peer, stream int) (net.Conn, error) {
				if block.Load() {
					hang <- struct{}{}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dial(ctx, peer, stream)
			}
		} else {
			c.Dial = nil
		}
	})
	block.Store(true)
	nodes[0].ln.closeAll()
	for range 4 {
		<-hang
	}
	block.Store(false)
	nodes[0].mesh.Kick(1)
	nodes[0].full(1)
}

// TestKickedOften: a host that is paused for moments renews its links again and again, faster than an attempt succeeds.
// Of two attempts in a row at most one is abandoned for that.
func TestKickedOften(t *testing.T) {
	const streams = 4
	var slow atomic.Bool
	var attempts, abandoned atomic.Int64
	nodes := newNodes(t, 2, func(c *link.Config) {
		if dial := c.Dial; c.Self == 0 {
			c.Dial = func(ctx context.Context, peer, stream int) (net.Conn, error) {
				if slow.Load() {
					attempts.Add(1)
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
						abandoned.Add(1)
						return nil, ctx.Err()
					}
				}
				return dial(ctx, peer, stream)
			}
		} else {
			c.Dial = nil
		}
	})
	before := nodes[0].status(1)
	slow.Store(true)
	nodes[0].ln.closeAll()
	must.Soon(t, "streams", func() bool {
		nodes[0].mesh.Kick(1)
		s := nodes[0].status(1)
		return s.Attached >= before.Attached+streams
	})
	if lost, all := abandoned.Load(), attempts.Load(); lost == 0 || 2*lost > all+streams {
		t.Errorf("%d of %d attempts were abandoned", lost, all)
	}
}
