package ssh

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// unansweredLimit is how long a connection outlives a silent peer: longer than the pause of a VM that is being moved,
// which loses nothing, and short enough to notice a dead host.
const unansweredLimit = 120 * time.Second

// segment is the longest TCP segment, in bytes and in both directions, that such a connection uses. With headers it is
// a packet of 576 bytes, which every network carries: where a network silently drops larger packets, connections open
// but logins hang. gorun sends little over ssh, and network cards segment it themselves.
const segment = 536

// dialTCP connects directly. Go sets TCP_NODELAY by itself, and tries a host's addresses in turn.
func dialTCP(ctx context.Context, s *settings) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 6},
		Control:         setSocketOptions,
	}
	return d.DialContext(ctx, s.network, s.addr())
}

// dialThrough opens a channel through a bastion.
func (c *Client) dialThrough(ctx context.Context, via *gossh.Client, s *settings) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	c.running.Go(func() { // opening a channel takes no context; it ends with the bastion's connection at the latest
		conn, err := via.Dial("tcp", s.addr())
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				conn.Close()
			}
		}
	})
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("through the bastion: %w", r.err)
		}
		return r.conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// greeting remembers the first line the server sends, and whether it closed the connection. A server that rejects us
// often explains why in that line, and the ssh library skips it.
type greeting struct {
	net.Conn
	ended atomic.Bool
	last  atomic.Pointer[time.Time] // when something was last received; nil before
	key   string                    // the server's, once it has logged us in

	mu   sync.Mutex
	line []byte
	full bool
}

const maxGreeting = 120

func (g *greeting) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if err == io.EOF {
		g.ended.Store(true)
	}
	if n > 0 {
		now := time.Now()
		g.last.Store(&now)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := 0; i < n && !g.full; i++ {
		g.line = append(g.line, b[i])
		g.full = b[i] == '\n' || len(g.line) == maxGreeting
	}
	return n, err
}

func (g *greeting) heard() time.Time {
	if last := g.last.Load(); last != nil {
		return *last
	}
	return time.Time{}
}

func (g *greeting) said() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return oneLine(string(g.line))
}
