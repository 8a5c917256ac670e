package gossip

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"gorun/collective/tcp"
)

// A member whose address changes keeps its old one as a name: memberlist takes one member at two addresses for two
// members with a conflict over a name. The transport maps the old address to the new one.

// transport is memberlist's transport, but reaches members by name.
type transport struct {
	*memberlist.NetTransport
	dials context.Context // cancelled by Shutdown, to end dials that memberlist waits for
	end   context.CancelFunc

	mu    sync.RWMutex
	moved map[string]string // host:port by name
}

// listen opens a transport at a port, 0 for one that is free for both TCP and UDP.
func listen(c *memberlist.Config) (*transport, error) {
	config := &memberlist.NetTransportConfig{BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger}
	for tries := 1; ; tries++ {
		t, err := memberlist.NewNetTransport(config)
		switch {
		case err == nil:
			c.BindPort = t.GetAutoBindPort()
			c.AdvertisePort = c.BindPort
			dials, end := context.WithCancel(context.Background())
			return &transport{NetTransport: t, dials: dials, end: end, moved: map[string]string{}}, nil
		case c.BindPort != 0 || tries == 10 || !strings.Contains(err.Error(), "address already in use"):
			return nil, err
		}
	}
}

// abandon closes a transport that memberlist never read from.
func (t *transport) abandon() error {
	done := make(chan struct{})
	var drain sync.WaitGroup
	drain.Go(func() { // its readers block until their data is taken
		for {
			select {
			case conn := <-t.StreamCh():
				conn.Close()
			case <-t.PacketCh():
			case <-done:
				return
			}
		}
	})
	err := t.Shutdown()
	close(done)
	drain.Wait()
	return err
}

// where returns the present address of a member.
func (t *transport) where(a memberlist.Address) memberlist.Address {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if to, ok := t.moved[a.Name]; ok {
		a.Addr = to
	}
	return a
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.NetTransport.WriteToAddress(b, t.where(a))
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.dials, timeout)
	defer cancel()
	d := net.Dialer{Control: tcp.SmallSegments}
	return d.DialContext(ctx, "tcp", t.where(a).Addr)
}

// Shutdown implements memberlist.Transport.
func (t *transport) Shutdown() error {
	t.end()
	return t.NetTransport.Shutdown()
}

// Route sets the address of a peer, as host:port, whatever address it joined with.
func (g *Gossip) Route(peer int, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("route gossip to host %d: %w", peer, err)
	}
	name := nameOf(peer)
	known, ok := g.find(name)
	g.transport.mu.Lock()
	defer g.transport.mu.Unlock()
	if ok && known.Address() == addr {
		delete(g.transport.moved, name)
	} else {
		g.transport.moved[name] = addr
	}
	return nil
}
