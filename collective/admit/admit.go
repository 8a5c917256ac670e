// Package admit bounds what a listener spends on peers that have not authenticated yet: how many connections they have,
// in all and from one address, for how long, and how much they may send. If there is no space for a new connection,
// the oldest one that has not authenticated is closed. So nobody who holds connections open, and opens them again,
// keeps other addresses out.
//
// The package knows no protocol and starts no goroutine.
package admit

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// All bounds the connections of a listener that have not authenticated yet.
	All = 1024
	// PerOrigin bounds those from one address.
	PerOrigin = 640
	// MaxBytes is how much may be read from one of them.
	MaxBytes = 32 << 10
)

var (
	// ErrCrowded means that a connection was closed before it authenticated, because newer ones came.
	ErrCrowded = errors.New("too many at once that have not authenticated")
	errTooLong = errors.New("the peer sends too much before it authenticates")
)

// Door counts the connections of one listener that have not authenticated yet. The zero value is ready for use.
type Door struct {
	// Timeout is how long a peer may take to authenticate. With 0 the server of the connection bounds that time, and
	// what it reads, by itself.
	Timeout time.Duration

	mu      sync.Mutex
	unknown []*Conn // oldest first
	of      map[netip.Prefix]int
	closed  bool
}

// Conn is an accepted connection. It counts until Known or Close is called.
type Conn struct {
	net.Conn
	door    *Door
	from    netip.Prefix
	read    int
	known   atomic.Bool
	crowded atomic.Bool
}

// Origin returns the address, or for IPv6 the network that the owner of one address usually controls.
func Origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	p, _ := ip.Prefix(min(ip.BitLen(), 64))
	return p
}

// Enter counts a connection. If there is no space for it, Enter closes another one. It never waits: whoever accepts
// connections must not be held up by one address. A connection that comes after Close is closed.
func (d *Door) Enter(conn net.Conn) *Conn {
	c := &Conn{Conn: conn, door: d, from: Origin(conn.RemoteAddr())}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		c.Conn.Close()
		return c
	}
	oldest := -1
	if d.of[c.from] >= PerOrigin {
		oldest = slices.IndexFunc(d.unknown, func(o *Conn) bool { return o.from == c.from })
	} else if len(d.unknown) >= All {
		oldest = 0
	}
	if oldest >= 0 {
		o := d.unknown[oldest]
		o.crowded.Store(true)
		o.Conn.Close()
		d.remove(o)
	}
	if d.of == nil {
		d.of = map[netip.Prefix]int{}
	}
	d.unknown = append(d.unknown, c)
	d.of[c.from]++
	if d.Timeout > 0 {
		c.SetDeadline(time.Now().Add(d.Timeout))
	}
	return c
}

// remove stops counting a connection, if it is counted. mu is held.
func (d *Door) remove(c *Conn) {
	i := slices.Index(d.unknown, c)
	if i < 0 {
		return
	}
	d.unknown = slices.Delete(d.unknown, i, i+1)
	if d.of[c.from]--; d.of[c.from] == 0 {
		delete(d.of, c.from)
	}
}

func (d *Door) leave(c *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(c)
}

// Close closes the connections that have not authenticated, and those that still come.
func (d *Door) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.unknown {
		c.Conn.Close()
	}
}

// Listener returns a listener whose connections enter by the door.
func (d *Door) Listener(l net.Listener) net.Listener { return listener{l, d} }

type listener struct {
	net.Listener
	door *Door
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.door.Enter(conn), nil
}

// Known notes that the peer has authenticated. The connection has no deadline from then on if the door has a timeout.
func (c *Conn) Known() {
	c.door.leave(c)
	if !c.known.Swap(true) && c.door.Timeout > 0 {
		c.SetDeadline(time.Time{})
	}
}

// Heard reports whether anything was read, up to Known.
func (c *Conn) Heard() bool { return c.read > 0 }

// Why returns ErrCrowded in place of an error on a connection that was closed for a newer one.
func (c *Conn) Why(err error) error {
	if err != nil && c.crowded.Load() {
		return ErrCrowded
	}
	return err
}

// Read implements net.Conn. Before Known, only one goroutine may read.
func (c *Conn) Read(b []byte) (int, error) {
	if c.door.Timeout == 0 || c.known.Load() {
		return c.Conn.Read(b)
	}
	if c.read >= MaxBytes {
		return 0, errTooLong
	}
	n, err := c.Conn.Read(b[:min(len(b), MaxBytes-c.read)])
	c.read += n
	return n, err
}

// CloseWrite ends what is sent, where the connection can do that: the peer of an HTTP server reads the answer then,
// whatever it still sends.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.door.leave(c)
	return c.Conn.Close()
}
