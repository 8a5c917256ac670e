package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// carrier counts a megabyte as delivered before it carries anything.
type carrier struct{ net.Conn }

// below returns the TCP connection that a carrier goes over.
func below(conn net.Conn) net.Conn { return conn.(interface{ NetConn() net.Conn }).NetConn() }

func (c carrier) WriteBuffers(all [][]byte) error {
	buffers := net.Buffers(all)
	_, err := buffers.WriteTo(c.Conn)
	return err
}

func (carrier) WriteNow(_, _ []byte) (int, error) { return 0, nil }

func (carrier) Delivered() (uint64, bool) { return 1 << 20, false }

func (carrier) RTT() time.Duration { return 7 * time.Microsecond }

// What streams deliver that the kernel does not carry counts as acknowledged, and their round trips are the link's.
func TestStatusCountsUpgraded(t *testing.T) {
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.Streams = 3
		c.Upgrade = func(_ context.Context, conn net.Conn, _, _ int) (net.Conn, error) { return carrier{below(conn)}, nil }
	})
	if s := nodes[0].status(1); s.Upgraded != 3 || s.AckedBytes != 3<<20 || s.RTT != 7*time.Microsecond {
		t.Errorf("%d streams are upgraded, %d bytes acknowledged in %v, want 3 and %d in 7 µs", s.Upgraded, s.AckedBytes, s.RTT, 3<<20)
	}
}

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
			if status := nodes[0].status(1); status.Streams != 3 || status.Upgraded != 0 {
				t.Errorf("%d streams, %d of them upgraded", status.Streams, status.Upgraded)
			}
		})
	}
}

// A stream is replaced also if both sides call Reopen more often than that takes.
func TestReopenAgainAndAgain(t *testing.T) {
	var slow atomic.Bool
	var attempts atomic.Int32
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.Upgrade = func(_ context.Context, conn net.Conn, _, _ int) (net.Conn, error) {
			if !slow.Load() {
				return conn, nil
			}
			attempts.Add(1)
			time.Sleep(100 * time.Millisecond)
			var agreed [1]byte // fails if the other side has given up
			if _, err := conn.Write(agreed[:]); err != nil {
				return nil, err
			}
			if _, err := io.ReadFull(conn, agreed[:]); err != nil {
				return nil, err
			}
			return carrier{below(conn)}, nil
		}
	})
	slow.Store(true)
	must.Soon(t, "an upgraded stream", func() bool {
		nodes[0].mesh.Reopen(1, 1)
		nodes[1].mesh.Reopen(0, 1)
		status := nodes[0].status(1)
		return status.Upgraded > 0
	})
	if n := attempts.Load(); n > 20 { // a few of both sides
		t.Errorf("it took %d attempts", n)
	}
}

// lossy is one end of a pipe that carries a stream in place of a connection, and damages what is written.
type lossy struct {
	net.Conn
	below  net.Conn
	damage func(said []byte)
}

func (c *lossy) Write(b []byte) (int, error) {
	said := slices.Clone(b)
	c.damage(said)
	return c.Conn.Write(said)
}

func (c *lossy) Close() error { return errors.Join(c.Conn.Close(), c.below.Close()) }

// pipes is a Config.Upgrade: host 0 makes a pipe, and reports its number over the connection.
type pipes struct {
	mu     sync.Mutex
	others []net.Conn
}

func (p *pipes) upgrade(conn net.Conn, self int) (net.Conn, error) {
	var number [1]byte
	if self == 1 {
		if _, err := io.ReadFull(conn, number[:]); err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.others[number[0]], nil
	}
	mine, other := net.Pipe()
	p.mu.Lock()
	number[0] = byte(len(p.others))
	p.others = append(p.others, other)
	p.mu.Unlock()
	if _, err := conn.Write(number[:]); err != nil {
		mine.Close()
		return nil, err
	}
	return mine, nil
}

// TestUpgradedIsChecked: where something else carries the bytes, tags find damage.
func TestUpgradedIsChecked(t *testing.T) {
	const damages = 4
	var p pipes
	var found atomic.Int64
	nodes := newNodes(t, 2, func(c *link.Config) {
		c.Check = true
		c.BackoffMin, c.BackoffMax = time.Millisecond, 10*time.Millisecond
		c.Damaged = func(link.Damage) { found.Add(1) }
		self := c.Self
		c.Upgrade = func(_ context.Context, conn net.Conn, _, _ int) (net.Conn, error) {
			carrier, err := p.upgrade(conn, self)
			return &lossy{carrier, conn, func(said []byte) {
				if len(said) > 10_000 && found.Load() < damages { // part of a large payload
					said[5000] ^= 1
				}
			}}, err
		}
	})
	tr := startTraffic(t, nodes, length)
	must.Soon(t, "damage", func() bool { return found.Load() >= damages })
	tr.finish(t, nodes)
}
