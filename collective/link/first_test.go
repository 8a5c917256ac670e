package link_test

import (
	"context"
	"net"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// TestManyFallbacks: a host that sends to many others for the first time leaves them time to dial, the more of them there
// are. Who does not dial is dialed all the same.
func TestManyFallbacks(t *testing.T) {
	const peers, unit = 20, 5 * time.Millisecond
	dialed := make(chan time.Time, 100*peers)
	last := newNode(t, peers, func(c *link.Config) {
		c.FallbackDial = 16 * unit
		dial := c.Dial
		c.Dial = func(ctx context.Context, peer, stream int) (net.Conn, error) {
			dialed <- time.Now()
			return dial(ctx, peer, stream)
		}
	})
	var all []int
	for id := range peers {
		peer := newNode(t, id, func(c *link.Config) { c.Dial = nil }) // it never dials
		must.Do(t, peer.mesh.Open([]int{last.id}))
		last.reach(id, peer.addr())
		all = append(all, id)
	}
	must.Do(t, last.mesh.Open(all))
	began := time.Now()
	for _, id := range all {
		last.mesh.Send(id, &link.Segment{Header: link.Header{Kind: link.Control, Op: 1}, Payload: pattern(1, 8)})
	}
	must.Soon(t, "a stream to each", func() bool {
		for _, id := range all {
			if s := last.status(id); s.Attached == 0 {
				return false
			}
		}
		return true
	})
	var latest time.Duration
	for range len(dialed) {
		latest = max(latest, (<-dialed).Sub(began))
	}
	if latest < peers*unit*3/4 {
		t.Errorf("the last of %d peers had %v to dial", peers, latest)
	}
}
