package link_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// courier passes connections on like proxy does, each message of a handshake when it wants to: what was sent later may
// arrive sooner, and what was sent before its connection ended may arrive after that.
type courier struct {
	*proxy
	newest   atomic.Int64 // number, from 1, of the newest connection of those whose proof was delivered
	overtook atomic.Int64 // proofs that were delivered after the proof of a newer connection

	recording sync.Mutex
	first     []byte // what the dialer of the first connection sent in its handshake
}

// A dialer sends hello, its proof, and how far it has come, the last two perhaps in one.
const (
	hello = iota
	proof
	messages = 3
)

// newCourier leads to target. Hold returns when a message of a handshake may be delivered.
func newCourier(t *testing.T, target string, hold func(conn int, dialer bool, message int)) *courier {
	c := &courier{proxy: newProxy(t, target, nil)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = func(conn int, dialer bool, nth int, said []byte) {
		if nth >= messages {
			return
		}
		if dialer && conn == 0 {
			c.recording.Lock()
			c.first = append(c.first, said...)
			c.recording.Unlock()
		}
		hold(conn, dialer, nth)
		if dialer && nth == proof {
			if before := c.newest.Load(); before > int64(conn) {
				c.overtook.Add(1)
			} else {
				c.newest.CompareAndSwap(before, int64(conn)+1)
			}
		}
	}
	return c
}

// over is true if these connections have ended.
func (c *courier) over(conns []int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range conns {
		if !errors.Is(c.conns[2*i+1].SetDeadline(time.Time{}), net.ErrClosed) {
			return false
		}
	}
	return true
}

// TestReconnectsInAnyOrder: both sides replace their streams again and again, also while they do, and their messages
// about it arrive in any order. Everything that is sent arrives once all the same, and in the end all streams are up.
func TestReconnectsInAnyOrder(t *testing.T) {
	const rounds = 60
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	nodes := apart(t, 2, func(c *link.Config) { c.FallbackDial = 5 * time.Millisecond })
	var couriers []*courier
	for i, n := range nodes {
		c := newCourier(t, nodes[1-i].addr(), func(int, bool, int) { time.Sleep(time.Duration(random(10)) * time.Millisecond) })
		n.reach(1-i, c.ln.Addr().String())
		couriers = append(couriers, c)
	}
	join(t, nodes...)
	tr := startTraffic(t, nodes, func(op uint64) int { return length(op) / 4 })
	attached := func() (n uint64) {
		for i, host := range nodes {
			s := host.status(1 - i)
			n += s.Attached
		}
		return n
	}
	for range rounds {
		before := attached()
		for i := random(4); i >= 0; i-- {
			side := random(2)
			if i > 0 && random(3) == 0 { // a connection breaks, which may be one that was replaced
				if c := nodes[side].ln.pick(random(1 << 20)); c != nil {
					c.Close()
				}
			} else { // all streams are replaced
				nodes[side].mesh.Kick(1 - side)
			}
			time.Sleep(time.Duration(random(15)) * time.Millisecond)
		}
		must.Soon(t, "another stream", func() bool { return attached() > before })
	}
	for i, n := range nodes {
		n.full(1 - i)
	}
	tr.finish(t, nodes)
	for i, n := range nodes {
		s := n.status(1 - i)
		c := couriers[i]
		c.mu.Lock()
		opened := len(c.passed)
		c.mu.Unlock()
		t.Logf("host %d opened %d connections, %d were overtaken by newer ones; %d streams came up, %d KiB of %d MiB went out again",
			i, opened, c.overtook.Load(), s.Attached, s.ResentBytes>>10, s.SentBytes>>20)
		if c.overtook.Load() == 0 {
			t.Errorf("no connection of host %d was overtaken", i)
		}
		if s.Lost != nil || len(n.lost) > 0 {
			t.Errorf("host %d lost the link: %v", i, s.Lost)
		}
	}
}

// TestLateConnections: a connection of a link that its host has given up, of a process that is no more, or that
// someone has recorded, completes when there is a newer link. It means nothing: no stream is replaced and nothing
// arrives twice.
func TestLateConnections(t *testing.T) {
	for name, restart := range map[string]bool{"of a former link": false, "of a former process": true} {
		for _, id := range []int{0, 1} { // who dials: the side that counts generations, or the other one
			t.Run(fmt.Sprintf("%s, host %d dials", name, id), func(t *testing.T) {
				var late atomic.Bool // connections that begin now are
				holds, release := make(chan int, 4), make(chan struct{})
				configure := func(c *link.Config) {
					c.HandshakeTimeout, c.DialTimeout, c.FallbackDial, c.ProgressTimeout = patience, patience, time.Millisecond, patience
				}
				stays, dials := newNode(t, 1-id, func(c *link.Config) { configure(c); c.Dial = nil }), newNode(t, id, configure)
				nodes := []*node{stays, dials}
				var mu sync.Mutex
				are := map[int]bool{}
				c := newCourier(t, stays.addr(), func(conn int, dialer bool, message int) {
					if !dialer {
						return
					}
					mu.Lock()
					if message == hello {
						are[conn] = late.Load()
					}
					hold := are[conn] && message == proof
					mu.Unlock()
					if hold {
						holds <- conn
						<-release
					}
				})
				dials.reach(1-id, c.ln.Addr().String())
				join(t, nodes...)
				dials.full(1 - id)
				late.Store(true)
				dials.mesh.Kick(1 - id) // whose proofs are under way
				var held []int
				for range 4 {
					held = append(held, <-holds)
				}
				late.Store(false)

				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				want := link.ErrReopened
				if restart {
					want = link.ErrRestarted
					dials.stop()
					dials = newNode(t, id, configure)
					dials.reach(1-id, c.ln.Addr().String())
					nodes[1] = dials
				} else {
					dials.mesh.Forget(1 - id)
				}
				connected := make(chan error, 1)
				go func() { connected <- dials.mesh.Connect(ctx, []int{1 - id}) }()
				if err := <-stays.lost; !errors.Is(err, want) {
					t.Fatalf("lost: %v, want %v", err, want)
				}
				stays.mesh.Forget(id)
				must.Do(t, errors.Join(stays.mesh.Connect(ctx, []int{id}), <-connected))
				for _, n := range nodes {
					n.full(nodes[0].id + nodes[1].id - n.id)
				}
				tr := startTraffic(t, nodes, length)
				must.Soon(t, "traffic", func() bool { return stays.inbox.delivered.Load() > 50 })
				before := stays.status(id)
				delivered := stays.inbox.delivered.Load()
				close(release)
				recorded, err := net.Dial("tcp", stays.addr())
				must.Do(t, err)
				defer recorded.Close()
				if _, err := recorded.Write(c.first); err != nil {
					t.Fatal(err)
				}
				recorded.SetReadDeadline(time.Now().Add(patience))
				for err == nil { // it is refused once it was read
					_, err = recorded.Read(make([]byte, 1<<10))
				}
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("a recorded connection is not refused")
				}
				must.Soon(t, "the end of the late connections", func() bool { return c.over(held) })
				must.Soon(t, "traffic", func() bool { return stays.inbox.delivered.Load() > delivered+200 })
				tr.finish(t, nodes)
				now := stays.status(id)
				if now.Attached != before.Attached || now.Streams != 4 || now.Lost != nil || len(stays.lost) > 0 {
					t.Errorf("%d streams came up, %d are, lost %v", now.Attached-before.Attached, now.Streams, now.Lost)
				}
			})
		}
	}
}
