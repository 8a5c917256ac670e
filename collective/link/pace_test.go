package link_test

import (
	"context"
	"net"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// One large segment at a time always goes over the same stream, unless that is slow.
func TestSlowStreamRests(t *testing.T) {
	other := newNode(t, 1, func(c *link.Config) { c.Dial = nil })
	p := newProxy(t, other.addr(), func(int) time.Duration { return 60 * time.Millisecond })
	nodes := []*node{newNode(t, 0, func(c *link.Config) {
		c.Dial = func(ctx context.Context, _, stream int) (net.Conn, error) {
			addr := other.addr()
			if stream == 3 { // which is the one that an idle link uses
				addr = p.ln.Addr().String()
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}), other}
	join(t, nodes...)
	nodes[0].full(1)
	const segments, size = 60, 256 << 10
	out := &outbox{t: t, limit: make(chan struct{}, 1)}
	for op := range uint64(segments) {
		out.send(nodes[0].mesh, 1, op, size)
		must.Soon(t, "acknowledged", func() bool { return out.acked.Load() == int64(op+1) })
	}
	var slow int64
	for _, n := range p.passed {
		slow += n.Load()
	}
	t.Logf("the slow stream carried %d of %d bytes", slow, segments*size)
	if slow > 5*size {
		t.Errorf("the slow stream carried %d of %d bytes", slow, segments*size)
	}
}
