package worker

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/rendezvous/wire"
)

// Where a peer is when it does not answer where it was: it may have got another address at the same moment as this host,
// so that neither could tell the other. The launcher tells them once it has found both, which takes it some seconds; names
// may tell sooner.

const (
	// lookupLimit is how long a name may take: there are other addresses to try.
	lookupLimit = 300 * time.Millisecond
	// lookupLasts is how long an answer counts, so that a host that is away does not keep name servers busy.
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
	mu     sync.Mutex
	doubts bool // it may not be where it was
	asked  time.Time
	found  []netip.Addr
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

// doubt says whether a peer may have gone elsewhere.
func (d *directory) doubt(peer int, doubts bool) {
	l := d.of(peer)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubts = doubts
}

// elsewhere returns addresses by which the peer is found by its name and that it did not give itself, if there is a doubt.
func (d *directory) elsewhere(ctx context.Context, p wire.Peer) []string {
	l := d.of(p.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.doubts || len(p.Data) == 0 {
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
