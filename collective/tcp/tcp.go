// Package tcp opens the connections that carry streams: listening, and dialing a peer that may have
// several addresses. Options are set per socket; nothing of the machine's settings is changed.
//
// Dial's goroutines end before it returns. The package reads and writes nothing and knows no protocol.
package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Options of the connections that are dialed. The zero value means the defaults.
type Options struct {
	// Segment is the longest one, in bytes, that a dialed connection sends and lets the peer send; 0 for what fits the
	// interfaces at both ends.
	Segment int
	// Stagger is how long an address has until the next one is tried beside it, and after the last one the first
	// again: TCP itself repeats the packet that opens a connection only after a second; 200 ms.
	Stagger time.Duration
}

const (
	// congestion is the congestion control: some machines default to bbr, which is several times slower on links
	// without loss.
	congestion = "cubic"
	// userTimeout is how long written data may go unacknowledged until the kernel gives the connection up. The link
	// replaces a stuck stream much earlier; this gets rid of the old one.
	userTimeout = 15 * time.Second
	// unsent bounds what the kernel takes before it can send it, so that a slow stream does not hoard segments that
	// another could carry.
	unsent = 512 << 10

	defaultStagger = 200 * time.Millisecond
)

// keepAlive finds connections that died while nothing was sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2500 * time.Millisecond, Count: 3}

// control sets what package net has no name for. Accepted connections inherit it from the listener.
// Go sets TCP_NODELAY itself.
func (o *Options) control(_, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = o.set(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// Listen listens on host:port; port 0 picks one.
func (o Options) Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: o.control, KeepAliveConfig: keepAlive}
	lc.SetMultipathTCP(false) // the kernel's MPTCP sockets are slower, and paths are the link's business
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for streams: %w", err)
	}
	return l, nil
}

// Dial connects to the first of the addresses that answers. The preferred one comes first: each gets a
// head start of Stagger, or until it fails, before the next one is tried as well.
func (o Options) Dial(ctx context.Context, addresses []string) (net.Conn, error) {
	o.Stagger = cmp.Or(o.Stagger, defaultStagger)
	control := func(_ context.Context, n, a string, c syscall.RawConn) error { return o.control(n, a, c) }
	d := net.Dialer{ControlContext: control, KeepAliveConfig: keepAlive}
	d.SetMultipathTCP(false)
	if len(addresses) == 0 {
		return nil, errors.New("dial: no address")
	}
	return o.race(ctx, &d, addresses)
}

type result struct {
	conn net.Conn
	err  error
}

// race dials all addresses, one after the other with a head start each, and again while none answers, at twice the
// interval each time, and keeps the first connection.
func (o *Options) race(ctx context.Context, d *net.Dialer, addresses []string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, len(addresses))
	started, ended := 0, 0
	next := func() {
		address := addresses[started%len(addresses)]
		started++
		go func() {
			conn, err := d.DialContext(ctx, "tcp", address)
			results <- result{conn, err}
		}()
	}
	next()
	stagger := time.NewTicker(o.Stagger)
	defer stagger.Stop()
	var won net.Conn
	var errs []error
	for ended < started {
		select {
		case r := <-results:
			ended++
			switch {
			case r.err != nil:
				if won == nil {
					errs = append(errs, r.err)
				}
			case won == nil:
				won = r.conn
				cancel() // the others end; they are waited for
			default:
				r.conn.Close()
			}
			if r.err != nil && won == nil && started < len(addresses) && ctx.Err() == nil {
				next()
				stagger.Reset(o.Stagger)
			}
		case <-stagger.C:
			if len(results) > 0 {
				continue // on a busy machine the answer may be there by the time that we look at the clock
			}
			if won == nil && ctx.Err() == nil {
				next()
				stagger.Reset(o.Stagger << min(started/len(addresses), 10))
			}
		}
	}
	if won == nil {
		return nil, errors.Join(errs...)
	}
	return won, nil
}
