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

// A member that gets another address keeps the one by which the others know it: memberlist takes a member at two
// addresses for two that quarrel about a name. What changes is where that leads to.

// transport is memberlist's, over which members are reached by their names.
type transport struct {
	*memberlist.NetTransport
	dials context.Context // ends with the transport, and ends what dials on it: memberlist waits for that
	end   context.CancelFunc

	mu    sync.RWMutex
	moved map[string]string // host:port by name
}

// listen opens a transport at a port, 0 for one that is free for TCP and UDP.
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

// abandon closes a transport from which memberlist never read.
func (t *transport) abandon() error {
	done := make(chan struct{})
	var drain sync.WaitGroup
	drain.Go(func() { // its readers wait for somebody who takes what they have
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

// where is the address that leads to a member now.
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

// Route says where a peer is reached from now on, as host:port, whatever address it joined with.
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
