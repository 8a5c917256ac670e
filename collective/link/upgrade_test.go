package link_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"gorun/collective/link"
)

// Config.Upgrade is called on both sides if both have it, and else on neither.
func TestUpgradeNeedsBothSides(t *testing.T) {
	for name, sides := range map[string]int{"neither": 0, "the dialer": 1, "both": 2} {
		t.Run(name, func(t *testing.T) {
			var calls [2]atomic.Int32
			nodes := newNodes(t, 2, func(c *link.Config) {
				c.Streams = 3
				if self := c.Self; self < sides {
					c.Upgrade = func(_ context.Context, conn net.Conn, peer, stream int) (net.Conn, error) {
						if peer != 1-self || stream >= 3 {
							t.Errorf("host %d upgrades stream %d to host %d", self, stream, peer)
						}
						calls[self].Add(1)
						return conn, nil
					}
				}
			})
			for i := range nodes {
				want := int32(3)
				if sides < 2 {
					want = 0
				}
				if n := calls[i].Load(); n != want {
					t.Errorf("host %d upgraded %d streams, want %d", i, n, want)
				}
			}
			if status, _ := nodes[0].mesh.Status(1); status.Streams != 3 || status.Upgraded != 0 {
				t.Errorf("%d streams, %d of them upgraded", status.Streams, status.Upgraded)
			}
		})
	}
}
