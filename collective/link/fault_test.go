package link_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
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
		must.Soon(t, "all acknowledged", func() bool { return tr.outs[i].acked.Load() == want })
		must.Soon(t, "all delivered", func() bool { return nodes[1-i].inbox.delivered.Load() == want })
		s := n.status(nodes[1-i].id)
		if s.Unacked != 0 || s.Queued != 0 {
			t.Errorf("host %d: sent %d, status %+v", n.id, tr.sent[i], s)
		}
	}
}

func TestKilledStreams(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 50
	}
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
			must.Soon(t, "progress", func() bool { return nodes[0].inbox.delivered.Load() > before+int64(rng.IntN(10)) })
		}
	}
	tr.finish(t, nodes)
	for i, n := range nodes {
		s := n.status(1 - i)
		t.Logf("host %d: %d MiB sent, %d segments of %d KiB again, %d streams", i, s.SentBytes>>20, s.ResentSegments, s.ResentBytes>>10,
			s.Attached)
		if s.ResentSegments == 0 || s.Attached < uint64(kills)/4 {
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
	knock(t, nodes[1].addr())
	tr := startTraffic(t, nodes, func(op uint64) int { return length(op) / 4 })
	for i := range uint64(breaks + 1) {
		must.Soon(t, fmt.Sprintf("another stream after %d breaks", i), func() bool {
			s := nodes[0].status(1)
			return s.Attached > i
		})
		for _, n := range nodes { // the side that dials goes by what it has heard
			before := n.inbox.delivered.Load()
			must.Soon(t, "progress", func() bool { return n.inbox.delivered.Load() > before+2 })
		}
		if i == breaks {
			break
		}
		for nodes[1].ln.pick(0).Close() != nil { // a handshake that failed has left a connection, too
		}
	}
	tr.finish(t, nodes)
}

// knock opens a connection that never becomes a stream, as a dialer does whose peer is not ready yet. It returns once
// the other side has closed it.
func knock(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must.Do(t, err)
	defer c.Close()
	c.(*net.TCPConn).CloseWrite()
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedStreams: over a path that damages data everything arrives as it was sent, encrypted or not, and both sides count the streams that damage ended.
func TestDamagedStreams(t *testing.T) {
	damages, blows := int64(20), int64(200) // that each side finds, and in all
	if testing.Short() {
		damages, blows = 4, 16
	}
	for name, encrypt := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it works
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			var told [2]atomic.Int64
			configure := func(c *link.Config) {
				c.Encrypt, c.Check = encrypt, true
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
			nodes := apart(t, 2, configure)
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
			must.Soon(t, "damage", func() bool {
				return hits.Load() > blows && told[0].Load() > damages && told[1].Load() > damages
			})
			for _, p := range proxies {
				p.setHold(nil)
				p.freeze()
			}
			tr.finish(t, nodes)
			for i, n := range nodes {
				s := n.status(1 - i)
				t.Logf("host %d: %d of %d hits found, %d MiB sent, %d segments again, %d streams", i, s.Damaged, hits.Load(), s.SentBytes>>20, s.ResentSegments, s.Attached)
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
	nodes, p := proxied(t, func(c *link.Config) { c.ProgressTimeout = 50 * time.Millisecond }, nil)
	nodes[1].reach(0, nodes[0].addr())
	join(t, nodes...)
	tr := startTraffic(t, nodes, length)
	for range 3 {
		before := nodes[0].inbox.delivered.Load()
		must.Soon(t, "traffic", func() bool { return nodes[0].inbox.delivered.Load() > before+100 })
		p.freeze()
	}
	before := nodes[1].inbox.delivered.Load()
	must.Soon(t, "traffic after the freeze", func() bool { return nodes[1].inbox.delivered.Load() > before+100 })
	tr.finish(t, nodes)
	if s := nodes[0].status(1); s.Attached <= 4 {
		t.Errorf("no stream was replaced: %+v", s)
	}
}

// Some streams are slow: they carry less, and do not set the pace.
func TestSlowStreamCarriesLess(t *testing.T) {
	nodes, p := proxied(t, nil, func(i int) time.Duration {
		if i >= 2 { // one of them at least carries large segments
			return 50 * time.Millisecond
		}
		return time.Millisecond
	})
	join(t, nodes...)
	nodes[0].full(1)
	const count, size = 400, 100_000
	out := &outbox{t: t}
	for op := range uint64(count) {
		out.send(nodes[0].mesh, 1, op, size)
	}
	must.Soon(t, "all acknowledged", func() bool { return out.acked.Load() == count })
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
