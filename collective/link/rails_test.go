package link_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// counted counts what is written to a connection.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// received is a Handler that counts.
type received struct{ segments atomic.Int64 }

func (*received) Place(int, link.Header) ([]byte, error) { return nil, nil }
func (r *received) Deliver(int, link.Header, []byte)     { r.segments.Add(1) }
func (r *received) got(n int64) func() bool              { return func() bool { return r.segments.Load() == n } }

// What is meant for a network goes over streams there, and over others if there is none.
func TestRails(t *testing.T) {
	const streams, networks, payload, each = 5, 2, 64 << 10, 40
	var (
		wrote   [streams]atomic.Int64
		mu      sync.Mutex
		refused = map[int]bool{}
		conns   = map[int]net.Conn{}
		handler received
	)
	a := newNode(t, 0, func(c *link.Config) {
		c.Streams, c.Rails = streams, networks
		dial := c.Dial
		c.Dial = func(ctx context.Context, peer, stream int) (net.Conn, error) {
			mu.Lock()
			no := refused[stream]
			mu.Unlock()
			if no {
				return nil, errors.New("this network is down")
			}
			conn, err := dial(ctx, peer, stream)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			conns[stream] = conn
			return counted{conn, &wrote[stream]}, nil
		}
	})
	b := newNode(t, 1, func(c *link.Config) {
		c.Streams, c.Rails, c.Handler = streams, networks, &handler
		c.Dial = nil // so that it is the other one that dials
	})
	a.reach(1, b.addr())
	var up sync.WaitGroup
	for _, n := range []*node{a, b} {
		up.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := n.mesh.Connect(ctx, []int{1 - n.id}); err != nil {
				t.Error(err)
			}
		})
	}
	up.Wait()
	var pins sync.Map
	b.mesh.Pin(func(stream int) { pins.Store(stream, true) })
	must.Soon(t, "all streams are up", func() bool { s, _ := a.mesh.Status(1); return s.Streams == streams })
	send := func(rail int) {
		for range each {
			a.mesh.Send(1, &link.Segment{Header: link.Header{Kind: link.Data}, Payload: make([]byte, payload), Rail: rail})
		}
	}
	on := func(rail int) (bytes int64) { // streams 1 and 3, and 2 and 4
		return wrote[rail].Load() + wrote[rail+networks].Load()
	}
	send(1)
	must.Soon(t, "segments for network 1 arrive", handler.got(each))
	counts := func(rail int, bytes int64) { // which may be after it arrived
		must.Soon(t, "all that was sent is counted", func() bool { return on(rail) >= bytes })
	}
	counts(1, each*payload)
	if on(2) >= payload {
		t.Errorf("for network 1 went %d bytes over it and %d over network 2, of %d", on(1), on(2), each*payload)
	}
	before := on(1)
	send(2)
	must.Soon(t, "segments for network 2 arrive", handler.got(2*each))
	for stream := 1; stream <= 4; stream++ {
		if _, ok := pins.Load(stream); !ok && wrote[stream].Load() > 2*payload {
			t.Errorf("nobody was told to pin stream %d, which carried %d bytes", stream, wrote[stream].Load())
		}
	}
	counts(2, each*payload)
	if on(1)-before >= payload {
		t.Errorf("for network 2 went %d bytes over it and %d over network 1, of %d", on(2), on(1)-before, each*payload)
	}

	mu.Lock()
	for _, stream := range []int{2, 4} {
		refused[stream] = true
		conns[stream].Close()
	}
	mu.Unlock()
	must.Soon(t, "network 2 is down", func() bool { s, _ := a.mesh.Status(1); return s.Streams == streams-2 })
	before = on(1)
	send(2)
	send(0)
	must.Soon(t, "segments for a network that is down arrive", handler.got(4*each))
	counts(1, before+2*each*payload)
}
