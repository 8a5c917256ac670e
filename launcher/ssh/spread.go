package ssh

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"sync"

	hostspread "gorun/launcher/spread"
)

// seeds is how many uploads run at once when hosts can also get the binary from each other.
const seeds = 4

// spread distributes the binary among hosts that lack it. Logins that lead to one directory, such as those to several
// addresses of a machine or to hosts with a shared home, get it once: the others wait and look again. With relay hosts may
// get it from each other.
type spread struct {
	mu     sync.Mutex
	places map[string]*place // by directory
	relay  bool
	queue  hostspread.Spread
	token  string
}

// place is a directory that some login is filling.
type place struct {
	done chan struct{}
	ok   bool // the binary is there; valid once done is closed
}

func newSpread() *spread {
	var token [16]byte
	rand.Read(token[:]) // never fails
	return &spread{places: map[string]*place{}, token: hex.EncodeToString(token[:]), queue: hostspread.Spread{Seeds: seeds}}
}

// Relay lets hosts that lack the binary get it from the hosts that Offer names. Those must send it to any peer that
// presents the word that Relay returns.
func (c *Client) Relay() (word string) {
	c.spread.mu.Lock()
	defer c.spread.mu.Unlock()
	c.spread.relay = true
	return c.spread.token
}

// Waiting reports whether an offer would be taken at once.
func (c *Client) Waiting() bool { return c.spread.queue.Waiting() }

// Offer announces that host:port serves the binary.
func (c *Client) Offer(address string) { c.spread.queue.Offer(address) }

var placeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{16}$`) })

// claim waits for the login that is filling the same directory. It returns true if the binary is there now; otherwise
// the caller must put it there and call done once with the result. An empty name is never shared.
func (s *spread) claim(ctx context.Context, sha, name string) (there bool, done func(ok bool), err error) {
	if !placeName().MatchString(name) {
		return false, func(bool) {}, nil
	}
	s.mu.Lock()
	p := s.places[sha+name]
	if p == nil {
		p = &place{done: make(chan struct{})}
		s.places[sha+name] = p
		s.mu.Unlock()
		return false, func(ok bool) { p.ok = ok; close(p.done) }, nil
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.ok, func(bool) {}, nil
	case <-ctx.Done():
		return false, nil, context.Cause(ctx)
	}
}

// acquire waits for a source: a host, or "" for the launcher. The caller calls release afterwards, with the result.
func (s *spread) acquire(ctx context.Context) (from string, release func(ok bool), err error) {
	s.mu.Lock()
	relay := s.relay
	s.mu.Unlock()
	if !relay {
		return "", func(bool) {}, nil
	}
	return s.queue.Acquire(ctx)
}
