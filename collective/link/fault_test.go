package link_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
)

// traffic sends segments both ways between two nodes until stopped.
type traffic struct {
	outs [2]*outbox
	sent [2]uint64
	stop atomic.Bool
	wg   sync.WaitGroup
}

func startTraffic(t *testing.T, nodes []*node, size func(op uint64) int) *traffic {
	tr := &traffic{}
	for i, n := range nodes[:2] {
		tr.outs[i] = &outbox{t: t, limit: make(chan struct{}, 40)}
		tr.wg.Go(func() {
			for op := uint64(0); !tr.stop.Load(); op++ {
				tr.outs[i].send(n.mesh, nodes[1-i].id, op, size(op))
				tr.sent[i]++
			}
		})
	}
	return tr
}

// finish stops sending and checks that everything arrived once and every owner was notified once.
func (tr *traffic) finish(t *testing.T, nodes []*node) {
	t.Helper()
	tr.stop.Store(true)
	tr.wg.Wait()
	for i, n := range nodes[:2] {
		want := int64(tr.sent[i])
		eventually(t, "all acknowledged", func() bool { return tr.outs[i].acked.Load() == want })
		eventually(t, "all delivered", func() bool { return nodes[1-i].inbox.delivered.Load() == want })
		s, _ := n.mesh.Status(nodes[1-i].id)
		if s.Unacked != 0 || s.Queued != 0 || s.SentSegments != tr.sent[i] {
			t.Errorf("host %d: sent %d, status %+v", n.id, tr.sent[i], s)
		}
	}
	for _, n := range nodes[:2] {
		if in := n.inbox; in.placed.Load() != in.delivered.Load()+in.unplaced.Load() {
			t.Errorf("host %d: placed %d, delivered %d, unplaced %d", n.id, in.placed.Load(), in.delivered.Load(), in.unplaced.Load())
		}
	}
}

func TestKilledStreams(t *testing.T) {
	const kills = 200
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.BackoffMin, c.BackoffMax, c.FallbackDial = time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	})
	// Shorter segments, so that there are many; the longest take several reads.
	tr := startTraffic(t, nodes, func(op uint64) int { return length(op) / 4 })
	for k := 0; k < kills; {
		before := nodes[0].inbox.delivered.Load()
		if c := nodes[rng.IntN(2)].ln.pick(rng.IntN(1 << 20)); c != nil {
			if tc := c.(*net.TCPConn); rng.IntN(2) == 0 {
				tc.SetLinger(0) // a reset: what is under way is lost
			}
			if c.Close() == nil { // it was alive
				k++
			}
		}
		if rng.IntN(4) > 0 { // let some happen at once
			eventually(t, "progress", func() bool { return nodes[0].inbox.delivered.Load() > before+int64(rng.IntN(10)) })
		}
	}
	tr.finish(t, nodes)
	for i, n := range nodes {
		s, _ := n.mesh.Status(1 - i)
		t.Logf("host %d: %d segments of %d MiB sent, %d of %d KiB again, %d streams, %d duplicates", i, s.SentSegments, s.SentBytes>>20,
			s.ResentSegments, s.ResentBytes>>10, s.Attached, s.Duplicates)
		if s.ResentSegments == 0 || s.Attached < 50 {
			t.Errorf("nothing broke: %+v", s)
		}
	}
}

// TestBreaksAfterProgress: a stream that breaks again and again, but has carried something each time, is replaced
// without a pause.
func TestBreaksAfterProgress(t *testing.T) {
	const breaks = 6
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.Streams, c.BackoffMin, c.BackoffMax, c.FallbackDial = 1, time.Minute, time.Minute, time.Minute
	})
	tr := startTraffic(t, nodes, func(op uint64) int { return length(op) / 4 })
	for i := range uint64(breaks + 1) {
		eventually(t, fmt.Sprintf("another stream after %d breaks", i), func() bool {
			s, _ := nodes[0].mesh.Status(1)
			return s.Attached > i
		})
		for _, n := range nodes { // the side that dials goes by what it has heard
			before := n.inbox.delivered.Load()
			eventually(t, "progress", func() bool { return n.inbox.delivered.Load() > before+2 })
		}
		if i == breaks {
			break
		}
		nodes[1].ln.pick(0).Close() // there is no other
	}
	tr.finish(t, nodes)
}

// proxy passes connections on until it is frozen; then existing ones stay open, but dead.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool // no more connections
	conns  []net.Conn
	frozen chan struct{}             // closed when the connections of now are frozen
	passed []*atomic.Int64           // bytes from the dialer, by connection
	slow   func(i int) time.Duration // delay of every read of a connection, if set
	hold   hold
}

// hold returns when a connection may pass on the nth thing that its dialer, or the other side, has sent; nil is at
// once.
type hold func(conn int, dialer bool, nth int, said []byte)

func newProxy(t *testing.T, target string, slow func(i int) time.Duration) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, frozen: make(chan struct{}), slow: slow}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.freeze()
		p.mu.Lock()
		p.closed = true
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		a, err := p.ln.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", p.target)
		if err != nil {
			a.Close()
			continue
		}
		p.mu.Lock()
		if p.closed { // which was accepted just before
			p.mu.Unlock()
			a.Close()
			b.Close()
			return
		}
		p.conns = append(p.conns, a, b)
		frozen := p.frozen
		n := &atomic.Int64{}
		i := len(p.passed)
		p.passed = append(p.passed, n)
		hold := p.hold
		p.mu.Unlock()
		if hold == nil {
			hold = func(int, bool, int, []byte) {}
		}
		var delay time.Duration
		if p.slow != nil {
			a.(*net.TCPConn).SetReadBuffer(32 << 10)
			delay = p.slow(i)
		}
		wait := func(dialer bool) func(int, []byte) {
			return func(nth int, said []byte) {
				time.Sleep(delay)
				hold(i, dialer, nth, said)
			}
		}
		p.wg.Go(func() { pass(a, b, frozen, n, wait(true)) })
		p.wg.Go(func() { pass(b, a, frozen, &atomic.Int64{}, wait(false)) })
	}
}

func pass(from, to net.Conn, frozen chan struct{}, passed *atomic.Int64, wait func(nth int, said []byte)) {
	buf := make([]byte, 32<<10)
	for nth := 0; ; nth++ {
		n, err := from.Read(buf)
		passed.Add(int64(n))
		wait(nth, buf[:n])
		select {
		case <-frozen:
			return
		default:
		}
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// setHold is for connections that come from now on.
func (p *proxy) setHold(h hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = h
}

// freeze makes the present connections half-open: nothing passes, nothing is closed.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

// damager damages some of what a proxy passes on: like a bad NIC it swaps two 16-bit words, or it flips a bit. It hits
// headers, acknowledgements and handshakes as well.
func damager(seed uint64, share float64, hits *atomic.Int64) hold {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(_ int, _ bool, _ int, said []byte) {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() >= share || len(said) < 8 {
			return
		}
		hits.Add(1)
		if rng.IntN(4) == 0 {
			said[rng.IntN(len(said))] ^= 1 << rng.IntN(8)
			return
		}
		i, j := rng.IntN(len(said)/2)*2, rng.IntN(len(said)/2)*2
		said[i], said[i+1], said[j], said[j+1] = said[j], said[j+1], said[i], said[i+1]
	}
}

// TestDamagedStreams: over a path that damages data everything arrives as it was sent, by TLS or by checksums, and
// both sides count the streams that damage ended.
func TestDamagedStreams(t *testing.T) {
	damages := int64(20) // that each side finds
	if testing.Short() {
		damages = 4
	}
	for name, seal := range map[string]*tls.Config{"plain": nil, "TLS": sealing(t, 1)} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			var told [2]atomic.Int64
			configure := func(c *link.Config) {
				c.TLS, c.Checksum = seal, true
				c.BackoffMin, c.BackoffMax, c.FallbackDial = time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
				c.HandshakeTimeout, c.ProgressTimeout = 200*time.Millisecond, 200*time.Millisecond
				self := c.Self
				c.Damaged = func(d link.Damage) {
					if d.Peer != 1-self || d.Local == nil || d.Remote == nil || d.Times == 0 {
						t.Errorf("host %d got %+v", self, d)
					}
					told[self].Add(1)
				}
			}
			var hits atomic.Int64
			nodes := []*node{newNode(t, 0, configure), newNode(t, 1, configure)}
			proxies := []*proxy{newProxy(t, nodes[0].addr(), nil), newProxy(t, nodes[1].addr(), nil)}
			for i, p := range proxies {
				nodes[1-i].reach(i, p.ln.Addr().String())
			}
			join(t, nodes...)
			for i, p := range proxies {
				p.setHold(damager(seed+uint64(i), 0.01, &hits))
				p.freeze() // so that no stream is spared
			}
			tr := startTraffic(t, nodes, func(op uint64) int { return length(op) / 4 })
			eventually(t, "damage", func() bool {
				return hits.Load() > 10*damages && told[0].Load() > damages && told[1].Load() > damages
			})
			for _, p := range proxies {
				p.setHold(nil)
				p.freeze()
			}
			tr.finish(t, nodes)
			for i, n := range nodes {
				s, _ := n.mesh.Status(1 - i)
				t.Logf("host %d: %d of %d hits found, %d segments of %d MiB sent, %d again, %d streams", i, s.Damaged, hits.Load(), s.SentSegments,
					s.SentBytes>>20, s.ResentSegments, s.Attached)
				if total := n.mesh.Totals().Damaged; s.Damaged == 0 || s.Damaged > uint64(hits.Load()) || total != s.Damaged {
					t.Errorf("host %d counts %d, in all %d, of %d hits", i, s.Damaged, total, hits.Load())
				}
				if one := n.mesh.Links(); len(one) != 1 || one[0].Peer != 1-i || one[0].Totals != n.mesh.Totals() || one[0].ResentSegments == 0 {
					t.Errorf("host %d has the links %+v, in all %+v", i, one, n.mesh.Totals())
				}
			}
		})
	}
}

func TestHalfOpenStreamsAreReplaced(t *testing.T) {
	configure := func(c *link.Config) { c.ProgressTimeout = 50 * time.Millisecond }
	nodes := []*node{newNode(t, 0, configure), newNode(t, 1, configure)}
	p := newProxy(t, nodes[1].addr(), nil)
	nodes[0].reach(1, p.ln.Addr().String())
	nodes[1].reach(0, nodes[0].addr())
	join(t, nodes...)
	tr := startTraffic(t, nodes, length)
	for range 3 {
		before := nodes[0].inbox.delivered.Load()
		eventually(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > before+100 })
		p.freeze()
	}
	before := nodes[1].inbox.delivered.Load()
	eventually(t, "traffic after the freeze", func() bool { return nodes[1].inbox.delivered.Load() > before+100 })
	tr.finish(t, nodes)
	if s, _ := nodes[0].mesh.Status(1); s.Attached <= 4 {
		t.Errorf("no stream was replaced: %+v", s)
	}
}

// Some streams are slow: they carry less, and do not set the pace.
func TestSlowStreamCarriesLess(t *testing.T) {
	nodes := []*node{newNode(t, 0, nil), newNode(t, 1, nil)}
	p := newProxy(t, nodes[1].addr(), func(i int) time.Duration {
		if i >= 2 { // one of them at least carries large segments
			return 50 * time.Millisecond
		}
		return time.Millisecond
	})
	nodes[0].reach(1, p.ln.Addr().String())
	nodes[1].reach(0, "127.0.0.1:1")
	join(t, nodes...)
	eventually(t, "all streams", func() bool { s, _ := nodes[0].mesh.Status(1); return s.Streams == 4 })
	const count, size = 400, 100_000
	out := &outbox{t: t}
	for op := range uint64(count) {
		out.send(nodes[0].mesh, 1, op, size)
	}
	eventually(t, "all acknowledged", func() bool { return out.acked.Load() == count })
	p.mu.Lock()
	defer p.mu.Unlock()
	most := int64(0)
	for _, n := range p.passed[:2] {
		most = max(most, n.Load())
	}
	for i, n := range p.passed {
		t.Logf("connection %d carried %d KiB", i, n.Load()>>10)
		if i >= 2 && n.Load() > most/2 {
			t.Errorf("slow connection %d carried %d bytes, the busiest fast one %d", i, n.Load(), most)
		}
	}
}

func TestAddressChange(t *testing.T) {
	nodes := newNodes(t, 2, func(c *link.Config) { c.ProgressTimeout = 200 * time.Millisecond })
	tr := startTraffic(t, nodes, length)
	eventually(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > 100 })
	// Host 1 can no longer be reached where it was, and its streams are gone: it must come by itself.
	nodes[0].reach(1, "127.0.0.1:1")
	for c := nodes[0].ln.pick(0); c != nil; c = nodes[0].ln.pick(0) {
		c.Close()
	}
	before := nodes[0].inbox.delivered.Load()
	eventually(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > before+100 })
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
			s, _ := nodes[self].mesh.Status(1 - self)
			before[self] = s.Attached
		}
		for _, self := range kicking {
			nodes[self].mesh.Kick(1 - self)
		}
		for _, self := range kicking { // to the other side, one that has just come up there may be new enough
			eventually(t, "new streams", func() bool {
				s, _ := nodes[self].mesh.Status(1 - self)
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
	before, _ := nodes[0].mesh.Status(1)
	var gone string
	nodes[0].mesh.Renew(1, func(local, _ net.Addr) bool {
		if gone == "" {
			gone = local.String()
		}
		return local.String() == gone
	})
	eventually(t, "a new stream", func() bool {
		now, _ := nodes[0].mesh.Status(1)
		return now.Attached == before.Attached+1 && now.Streams == 4
	})
	tr.finish(t, nodes)
	if now, _ := nodes[0].mesh.Status(1); now.Attached != before.Attached+1 {
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
	for c := nodes[0].ln.pick(0); c != nil; c = nodes[0].ln.pick(0) {
		c.Close()
	}
	for range 4 {
		<-hang
	}
	block.Store(false)
	nodes[0].mesh.Kick(1)
	eventually(t, "streams", func() bool { s, _ := nodes[0].mesh.Status(1); return s.Streams == 4 })
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
	before, _ := nodes[0].mesh.Status(1)
	slow.Store(true)
	for c := nodes[0].ln.pick(0); c != nil; c = nodes[0].ln.pick(0) {
		c.Close()
	}
	eventually(t, "streams", func() bool {
		nodes[0].mesh.Kick(1)
		s, _ := nodes[0].mesh.Status(1)
		return s.Attached >= before.Attached+streams
	})
	if lost, all := abandoned.Load(), attempts.Load(); lost == 0 || 2*lost > all+streams {
		t.Errorf("%d of %d attempts were abandoned", lost, all)
	}
}

func TestWrongKeyOrJobIsRefused(t *testing.T) {
	for name, configure := range map[string]func(*link.Config){
		"key": func(c *link.Config) { c.Key = []byte(strings.Repeat("x", 32)) },
		"job": func(c *link.Config) { c.Job = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			for _, liar := range []int{0, 1} { // as dialer, and as acceptor
				nodes := []*node{}
				for i := range 2 {
					nodes = append(nodes, newNode(t, i, func(c *link.Config) {
						if i == liar {
							configure(c)
						}
					}))
				}
				nodes[0].reach(1, nodes[1].addr())
				nodes[1].reach(0, nodes[0].addr())
				var wg sync.WaitGroup
				for i := range nodes {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						if err := nodes[i].mesh.Connect(ctx, []int{1 - i}); !errors.Is(err, link.ErrKey) {
							t.Errorf("host %d connected: %v", i, err)
						}
					})
				}
				wg.Wait()
				for i, n := range nodes {
					if s, _ := n.mesh.Status(1 - i); s.Streams != 0 || s.Attached != 0 {
						t.Errorf("host %d has streams: %+v", i, s)
					}
				}
			}
		})
	}
}

func TestWrongHostIsNamed(t *testing.T) {
	nodes := []*node{newNode(t, 0, nil), newNode(t, 1, nil), newNode(t, 2, nil)}
	nodes[0].reach(1, nodes[2].addr())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := nodes[0].mesh.Connect(ctx, []int{1})
	if err == nil || !strings.Contains(err.Error(), "connect to host 1") || !strings.Contains(err.Error(), "host 2 instead of 1") {
		t.Errorf("got %v", err)
	}
}

func TestConnectNamesWhoIsMissing(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	nodes[0].reach(7, "127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := nodes[0].mesh.Connect(ctx, []int{1, 7})
	if err == nil || !strings.Contains(err.Error(), "host 7") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

func TestRestartedPeerIsLost(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	out := &outbox{t: t}
	nodes[1].stop()
	out.send(nodes[0].mesh, 1, 2, 100_000) // never acknowledged by the new one
	again := newNode(t, 1, nil)
	again.reach(0, nodes[0].addr())
	nodes[0].reach(1, again.addr())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- again.mesh.Connect(ctx, []int{0}) }()
	if err := <-nodes[0].lost; !errors.Is(err, link.ErrRestarted) || !strings.Contains(err.Error(), "host 1") {
		t.Errorf("lost: %v", err)
	}
	nodes[0].mesh.Forget(1)
	if err := nodes[0].mesh.Connect(ctx, []int{1}); err != nil {
		t.Error(err)
	}
	if err := <-connected; err != nil {
		t.Error(err)
	}
	out.send(nodes[0].mesh, 1, 3, 100_000)
	eventually(t, "delivery", func() bool { return again.inbox.delivered.Load() == 1 })
	eventually(t, "acknowledgement", func() bool { return out.acked.Load() == 1 })
}

// When the world changes, every host forgets and connects again, each in its own time.
func TestReopenedLinks(t *testing.T) {
	for round := range 10 {
		nodes := newNodes(t, 2, nil)
		first := round % 2
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for i := range 5 {
			var wg sync.WaitGroup
			a, b := nodes[first], nodes[1-first]
			a.mesh.Forget(b.id)
			wg.Go(func() {
				if err := a.mesh.Connect(ctx, []int{b.id}); err != nil {
					t.Error(err)
				}
			})
			if i%2 == 0 { // otherwise at about the same time
				if err := <-b.lost; !errors.Is(err, link.ErrReopened) {
					t.Errorf("lost: %v", err)
				}
			}
			b.mesh.Forget(a.id)
			if err := b.mesh.Connect(ctx, []int{a.id}); err != nil {
				t.Error(err)
			}
			wg.Wait()
			for len(b.lost) > 0 {
				<-b.lost
			}
			if len(a.lost) > 0 {
				t.Fatalf("round %d: host %d lost a link that was new: %v", round, a.id, <-a.lost)
			}
		}
		for _, n := range nodes {
			n.stop()
		}
	}
}

func TestForgetReleasesMemory(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	tr := startTraffic(t, nodes, length)
	eventually(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > 50 })
	tr.stop.Store(true)
	nodes[0].mesh.Forget(1)
	// Senders must not wait for room that never comes.
	acked, delivered := tr.outs[0].acked.Load(), nodes[0].inbox.delivered.Load()
	placed := nodes[0].inbox.placed.Load()
	nodes[1].mesh.Forget(0)
	if tr.outs[0].acked.Load() != acked || nodes[0].inbox.delivered.Load() != delivered || nodes[0].inbox.placed.Load() != placed {
		t.Error("something went on after Forget")
	}
	if in := nodes[0].inbox; placed != delivered+in.unplaced.Load() {
		t.Errorf("placed %d, delivered %d, unplaced %d", placed, delivered, in.unplaced.Load())
	}
	for _, out := range tr.outs {
		for len(out.limit) > 0 {
			<-out.limit
		}
	}
	tr.wg.Wait()
}

func TestUnauthenticatedDoNotKeepPeersOut(t *testing.T) {
	configure := func(c *link.Config) {
		c.Unauthenticated, c.HandshakeTimeout = 4, 100*time.Millisecond
	}
	nodes := []*node{newNode(t, 0, configure), newNode(t, 1, configure)}
	nodes[0].reach(1, nodes[1].addr())
	nodes[1].reach(0, nodes[0].addr())
	for i := range 12 {
		c, err := net.Dial("tcp", nodes[1].addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch i % 3 {
		case 0: // says nothing
		case 1:
			c.Write([]byte("GET / HTTP/1.0\r\n\r\n" + strings.Repeat("x", 200)))
		case 2:
			c.(*net.TCPConn).CloseWrite()
		}
	}
	join(t, nodes...)
	silent, err := net.Dial("tcp", nodes[1].addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	silent.SetReadDeadline(time.Now().Add(patience))
	if n, err := silent.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a silent stranger read %d bytes, %v", n, err)
	}
}

func TestUpDown(t *testing.T) {
	for range 30 {
		nodes := newNodes(t, 2, func(c *link.Config) { c.Streams = 2 })
		out := &outbox{t: t}
		for op := range uint64(5) {
			out.send(nodes[0].mesh, 1, op, length(op))
		}
		for _, n := range nodes {
			n.stop()
		}
	}
}
