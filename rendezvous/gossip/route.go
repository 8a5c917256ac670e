package gossip

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"gorun/collective/admit"
	"gorun/collective/tcp"
)

// A member whose address changes keeps its old one as a name: memberlist takes one member at two addresses for two
// members with a conflict over a name. The transport maps the old address to the new one.

// transport is memberlist's transport, but reaches members by name, and passes on only what members sent (meet.go).
type transport struct {
	*memberlist.NetTransport
	dials   context.Context // cancelled by Shutdown, to end dials that memberlist waits for
	end     context.CancelFunc
	keys    [][]byte // that open streams; this member proves the first
	label   string
	door    admit.Door
	streams chan net.Conn
	packets chan *memberlist.Packet
	closed  chan struct{} // nothing comes any more
	once    sync.Once
	passing sync.WaitGroup

	mu    sync.RWMutex
	moved map[string]string // host:port by name
}

// listen opens a transport at a port, 0 for one that is free for both TCP and UDP.
func listen(c *memberlist.Config) (*transport, error) {
	var keys [][]byte
	for _, key := range c.Keyring.GetKeys() { // the primary one comes first
		key, err := hkdf.Key(sha256.New, key, nil, "gorun gossip stream", sha256.Size)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	config := &memberlist.NetTransportConfig{BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger}
	for tries := 1; ; tries++ {
		inner, err := memberlist.NewNetTransport(config)
		switch {
		case err == nil:
			c.BindPort = inner.GetAutoBindPort()
			c.AdvertisePort = c.BindPort
			t := &transport{NetTransport: inner, keys: keys, label: c.Label, moved: map[string]string{},
				streams: make(chan net.Conn), packets: make(chan *memberlist.Packet), closed: make(chan struct{})}
			t.dials, t.end = context.WithCancel(context.Background())
			t.door.Timeout = c.TCPTimeout
			t.passing.Go(t.passStreams)
			t.passing.Go(t.passPackets)
			return t, nil
		case c.BindPort != 0 || tries == 10 || !strings.Contains(err.Error(), "address already in use"):
			return nil, err
		}
	}
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
	conn, err := d.DialContext(ctx, "tcp", t.where(a).Addr)
	if err != nil {
		return nil, err
	}
	return t.introduce(ctx, conn)
}

// Shutdown implements memberlist.Transport.
func (t *transport) Shutdown() (err error) {
	t.once.Do(func() {
		t.end()
		t.door.Close()
		err = t.NetTransport.Shutdown() // its readers block until their data is taken
		close(t.closed)
		t.passing.Wait()
	})
	return err
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
