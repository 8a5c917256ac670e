package network

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gorun/rendezvous/wire"
)

// Where to find a peer that does not answer at its addresses. If it got another one at the same moment as this host,
// neither could notify the other. The launcher does once it has found both, which takes some seconds; looking up the
// peer's name may be faster.

const (
	// lookupLimit is how long a name may take: there are other addresses to try.
	lookupLimit = 300 * time.Millisecond
	// lookupLasts is how long an answer counts, so that an unreachable host does not keep name servers busy.
	lookupLasts = time.Second
)

// directory finds peers by their names. It is safe for use by many goroutines.
type directory struct {
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	peers map[int]*listing
}

// listing is what is known of one peer.
type listing struct {
	doubts  atomic.Bool            // it may not be where it was
	reached atomic.Pointer[string] // where it was found by its name, nil if it was found at the addresses it gave

	mu    sync.Mutex // held while its name is looked up: one of the askers is enough
	asked time.Time
	found []netip.Addr
}

func newDirectory() *directory {
	resolve := func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	return &directory{resolve: resolve, peers: map[int]*listing{}}
}

func (d *directory) of(peer int) *listing {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.peers[peer]
	if l == nil {
		l = &listing{}
		d.peers[peer] = l
	}
	return l
}

// doubt notes that a peer may have gone elsewhere.
func (d *directory) doubt(peer int) { d.of(peer).doubts.Store(true) }

// tried notes how an attempt to reach a peer ended. A peer that was found by its name is looked for there first from
// now on: it takes a while to report its new address, and each of its streams has to find it.
func (d *directory) tried(p wire.Peer, conn net.Conn, err error) {
	l := d.of(p.ID)
	if err != nil {
		l.doubts.Store(true)
		l.reached.Store(nil)
		return
	}
	at := conn.RemoteAddr().String()
	elsewhere := !slices.Contains(p.Data, at)
	l.doubts.Store(elsewhere)
	if elsewhere {
		l.reached.Store(&at)
	}
}

// search returns where to look for a peer, best first, if these are the addresses that it gave.
func (d *directory) search(ctx context.Context, p wire.Peer, said []string) []string {
	l := d.of(p.ID)
	if !l.doubts.Load() {
		return said
	}
	if at := l.reached.Load(); at != nil && !slices.Contains(p.Data, *at) {
		return append([]string{*at}, said...)
	}
	return slices.Concat(said, d.elsewhere(ctx, l, p))
}

// elsewhere returns addresses that the peer's name resolves to and that it did not give itself.
func (d *directory) elsewhere(ctx context.Context, l *listing, p wire.Peer) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p.Data) == 0 {
		return nil
	}
	if l.asked.IsZero() || time.Since(l.asked) > lookupLasts {
		limit, cancel := context.WithTimeout(ctx, lookupLimit)
		defer cancel()
		l.found, _ = d.resolve(limit, p.Name[strings.LastIndexByte(p.Name, '@')+1:]) // a name may be ssh's alone
		l.asked = time.Now()
	}
	_, port, _ := net.SplitHostPort(p.Data[0])
	var out []string
	for _, a := range l.found {
		address := net.JoinHostPort(a.Unmap().String(), port)
		if !a.IsLoopback() && !slices.Contains(p.Data, address) { // this host may know its peer's name as its own
			out = append(out, address)
		}
	}
	return out
}
