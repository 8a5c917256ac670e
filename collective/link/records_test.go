package link_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// Encrypted links lose nothing either when their streams are killed.
func TestEncryptedStreamsAreKilled(t *testing.T) {
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.Encrypt = true
		c.BackoffMin, c.BackoffMax, c.FallbackDial = time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	})
	tr := startTraffic(t, nodes, func(op uint64) int { return length(op) / 4 })
	for k := 0; k < 20; k++ {
		before := nodes[0].inbox.delivered.Load()
		must.Soon(t, "a stream to kill", func() bool {
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
		must.Soon(t, "progress", func() bool { return nodes[0].inbox.delivered.Load() > before+5 })
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

// With encryption, nothing of what hosts send each other can be read on the wire.
func TestEncryptedWire(t *testing.T) {
	var mu sync.Mutex
	var taps []*tap
	secret := bytes.Repeat([]byte("a secret gradient"), 4000)
	listen := func(c *link.Config) {
		c.Encrypt, c.Handler = true, silent{}
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
			if bytes.Contains(b, []byte("a secret gradient")) {
				t.Errorf("connection %d: the payload is on the wire", i)
			}
			hidden += len(b)
		}
		c.mu.Unlock()
	}
	if hidden < 2*(len(secret)+5100) {
		t.Errorf("%d bytes on the wire, fewer than were sent", hidden)
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

// Hosts of which one encrypts, or that have another key, do not get in, and report that.
func TestOtherConfigurations(t *testing.T) {
	for name, c := range map[string]struct {
		other func(*link.Config)
		want  string
	}{
		"another key":   {func(c *link.Config) { c.Key = bytes.Repeat([]byte{8}, 32) }, link.ErrKey.Error()},
		"no encryption": {func(c *link.Config) { c.Encrypt = false }, "one of the hosts encrypts"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := apart(t, 2, func(cfg *link.Config) {
				cfg.Encrypt = true
				if cfg.Self == 1 {
					c.other(cfg)
				}
			})
			limit := patience
			if c.want != link.ErrKey.Error() { // they go on trying
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var both sync.WaitGroup
			for i, n := range nodes {
				both.Go(func() {
					if err := n.mesh.Connect(ctx, []int{1 - i}); err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("host %d: %v, want %q", i, err, c.want)
					}
				})
			}
			both.Wait()
			for i, n := range nodes {
				if s := n.status(1 - i); s.Attached != 0 || n.inbox.placed.Load() != 0 {
					t.Errorf("host %d: %+v", i, s)
				}
			}
		})
	}
}

// TestHostileRelay: somebody on the path passes the handshake on and then changes, repeats or drops what ranks and
// engines would believe. Nothing of that is delivered, and what was sent arrives all the same.
func TestHostileRelay(t *testing.T) {
	good, evil := []byte("import good"), []byte("import evil")
	large := bytes.Repeat(good, 30_000)
	for name, c := range map[string]struct {
		payload []byte
		kind    link.SegmentKind
		flags   uint8
		check   bool
		attack  func(said []byte)
	}{
		"message of the engine": {good, link.Control, 0, false, nil},
		"large message":         {large, link.Control, 0, false, nil},
		"small object":          {good, link.Data, 0, false, nil},
		"large object":          {large, link.Data, link.FlagCheck, false, nil},
		"gradients":             {large, link.Data, 0, true, nil},
		"headers":               {good, link.Data, 0, false, func(said []byte) { said[offOfOffset] ^= 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			var tried atomic.Int64
			attack := c.attack
			if attack == nil {
				attack = func(said []byte) {
					if i := bytes.LastIndex(said, good); i >= 0 {
						copy(said[i:], evil)
						tried.Add(1)
					}
				}
			}
			var found atomic.Int64
			got := make(chan string, 8)
			nodes, relay := proxied(t, func(cfg *link.Config) {
				cfg.Check, cfg.Streams, cfg.BackoffMin = c.check, 1, time.Millisecond
				cfg.Handler = believer{got}
				cfg.Damaged = func(link.Damage) { found.Add(1) }
			}, nil)
			relay.setHold(func(_ int, dialer bool, nth int, said []byte) {
				if dialer && nth > 0 && len(said) >= 95 && found.Load() < 3 { // a frame with a payload
					if c.attack != nil {
						tried.Add(1)
					}
					attack(said)
				}
			})
			join(t, nodes...)
			nodes[0].mesh.Send(1, &link.Segment{Header: link.Header{Kind: c.kind, Flags: c.flags}, Payload: c.payload})
			select {
			case what := <-got:
				if what != string(c.payload) {
					t.Error("something else was delivered than was sent")
				}
			case <-time.After(patience):
				t.Error("nothing was delivered")
			}
			if tried.Load() == 0 || found.Load() == 0 {
				t.Errorf("%d attacks, %d found", tried.Load(), found.Load())
			}
		})
	}
}

// offOfOffset is where a header that starts a message has its offset.
const offOfOffset = 24

// believer delivers payloads as they come.
type believer struct{ got chan<- string }

func (believer) Place(int, link.Header) ([]byte, error) { return nil, nil }
func (b believer) Deliver(_ int, _ link.Header, payload []byte) {
	select {
	case b.got <- string(payload):
	default:
	}
}
