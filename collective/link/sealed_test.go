package link_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/keytls"
)

func sealing(t testing.TB, seed byte) *tls.Config {
	t.Helper()
	c, err := keytls.New(bytes.Repeat([]byte{seed}, keytls.SeedSize), "test", link.ErrKey)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Links inside TLS lose nothing either when their streams are killed.
func TestSealedStreamsAreKilled(t *testing.T) {
	seal := sealing(t, 1)
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.TLS = seal
		c.BackoffMin, c.BackoffMax, c.FallbackDial = time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	})
	tr := startTraffic(t, nodes, func(op uint64) int { return length(op) / 4 })
	for k := 0; k < 20; k++ {
		before := nodes[0].inbox.delivered.Load()
		eventually(t, "a stream to kill", func() bool {
			// Host 1 dials only when host 0 takes long to, so there may never be another one at host 0.
			c := nodes[k%2].ln.pick(k)
			if c == nil {
				c = nodes[1-k%2].ln.pick(k)
			}
			if c == nil {
				return false
			}
			if k%3 == 0 {
				c.(*net.TCPConn).SetLinger(0)
			}
			return c.Close() == nil
		})
		eventually(t, "progress", func() bool { return nodes[0].inbox.delivered.Load() > before+5 })
	}
	tr.finish(t, nodes)
}

// tap remembers what goes over a connection.
type tap struct {
	net.Conn
	mu      sync.Mutex
	in, out []byte
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = append(c.in, b[:n]...)
	return n, err
}

func (c *tap) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, b[:n]...)
	return n, err
}

// Nothing but TLS records is on the wire, and nothing in them can be read.
func TestSealedWire(t *testing.T) {
	seal := sealing(t, 1)
	var mu sync.Mutex
	var taps []*tap
	secret := bytes.Repeat([]byte("a secret gradient"), 4000)
	listen := func(c *link.Config) {
		c.TLS, c.Handler = seal, silent{}
		dial := c.Dial
		c.Dial = func(ctx context.Context, peer, stream int) (net.Conn, error) {
			conn, err := dial(ctx, peer, stream)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			taps = append(taps, &tap{Conn: conn})
			return taps[len(taps)-1], nil
		}
	}
	nodes := newNodes(t, 2, listen)
	var acked sync.WaitGroup
	for i, n := range nodes {
		for _, size := range []int{100, 5000, len(secret)} {
			acked.Add(1)
			n.mesh.Send(1-i, &link.Segment{Header: link.Header{Kind: link.Control, Op: uint64(size)}, Payload: secret[:size], Owner: told(acked.Done)})
		}
	}
	acked.Wait()
	for _, n := range nodes {
		n.stop()
	}
	mu.Lock()
	defer mu.Unlock()
	hidden := 0
	for i, c := range taps {
		c.mu.Lock()
		for _, b := range [][]byte{c.in, c.out} {
			for _, plain := range []string{"a secret gradient", "grn1", "lnk1"} {
				if bytes.Contains(b, []byte(plain)) {
					t.Errorf("connection %d: %q is on the wire", i, plain)
				}
			}
			hidden += records(t, b)
		}
		c.mu.Unlock()
	}
	if hidden < 2*(len(secret)+5100) {
		t.Errorf("%d bytes in records, fewer than were sent", hidden)
	}
}

// silent takes whatever comes.
type silent struct{}

func (silent) Place(int, link.Header) ([]byte, error) { return nil, nil }
func (silent) Deliver(int, link.Header, []byte)       {}

// told is an owner that only wants to know when the peer has a segment.
type told func()

func (told) Prepare(*link.Segment) {}
func (f told) Acked(*link.Segment) { f() }

// records takes one direction of a connection apart and returns the bytes of application data.
func records(t *testing.T, b []byte) (data int) {
	t.Helper()
	for len(b) >= 5 {
		kind, n := b[0], int(b[3])<<8|int(b[4])
		if kind < 20 || kind > 23 || b[1] != 3 || n > 16<<10+256 {
			t.Fatalf("no TLS record: % x", b[:5])
		}
		if kind == 23 {
			data += n
		}
		b = b[min(5+n, len(b)):]
	}
	return data
}

// Hosts with another key, or with none, do not get in, and report that.
func TestSealedKeys(t *testing.T) {
	for name, other := range map[string]*tls.Config{"another key": sealing(t, 2), "no TLS": nil} {
		t.Run(name, func(t *testing.T) {
			a := newNode(t, 0, func(c *link.Config) { c.TLS = sealing(t, 1) })
			b := newNode(t, 1, func(c *link.Config) {
				if c.TLS = other; other == nil {
					c.HandshakeTimeout = 200 * time.Millisecond
				}
			})
			a.reach(1, b.addr())
			b.reach(0, a.addr())
			limit := patience
			if other == nil { // a side that speaks no TLS cannot know why no one answers
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var both sync.WaitGroup
			for i, n := range []*node{a, b} {
				both.Go(func() {
					err := n.mesh.Connect(ctx, []int{1 - i})
					if err == nil || other != nil && !errors.Is(err, link.ErrKey) {
						t.Errorf("host %d: %v", i, err)
					}
				})
			}
			both.Wait()
			for i, n := range []*node{a, b} {
				if s, _ := n.mesh.Status(1 - i); s.Attached != 0 || s.ReceivedSegments != 0 {
					t.Errorf("host %d: %+v", i, s)
				}
			}
		})
	}
}
