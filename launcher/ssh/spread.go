package ssh

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"slices"
	"sync"
)

const (
	// seeds is how many uploads run at once when hosts can also get the binary from each other.
	seeds = 4
	// fanOut is how many hosts one host serves at once.
	fanOut = 2
)

// spread distributes the binary among hosts that lack it. Logins that lead to one directory, such as those to several
// addresses of a machine or to hosts with a shared home, get it once: the others wait and look again. Hosts may get it
// from each other (relay): then few uploads run at a time, and a waiting host takes what comes first, another host or
// an upload. So the launcher's traffic does not grow with the number of hosts, and no host waits for one that cannot be
// reached.
type spread struct {
	mu      sync.Mutex
	places  map[string]*place // by directory
	relay   bool
	uploads int // in progress while relay is set
	sources []*source
	queue   []chan delivery // waiting logins, each with room for its answer
	token   string
}

// place is a directory that some login is filling.
type place struct {
	done chan struct{}
	ok   bool // the binary is there; valid once done is closed
}

// source is a host that serves the binary.
type source struct {
	address string
	inUse   int
	broken  bool
}

// delivery is how a host gets the binary: from another host or, without one, from the launcher.
type delivery struct{ from *source }

func newSpread() *spread {
	var token [16]byte
	rand.Read(token[:]) // never fails
	return &spread{places: map[string]*place{}, token: hex.EncodeToString(token[:])}
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
func (c *Client) Waiting() bool {
	c.spread.mu.Lock()
	defer c.spread.mu.Unlock()
	return len(c.spread.queue) > 0
}

// Offer announces that host:port serves the binary.
func (c *Client) Offer(address string) { c.spread.offer(address) }

func (s *spread) offer(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, &source{address: address})
	s.assignLocked()
}

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

// acquire waits for a delivery. The caller calls release afterwards, with the result.
func (s *spread) acquire(ctx context.Context) (w delivery, release func(ok bool), err error) {
	mine := make(chan delivery, 1)
	s.mu.Lock()
	if !s.relay {
		s.mu.Unlock()
		return delivery{}, func(bool) {}, nil
	}
	s.queue = append(s.queue, mine)
	s.assignLocked()
	s.mu.Unlock()
	select {
	case w = <-mine:
	case <-ctx.Done():
		s.mu.Lock()
		s.queue = slices.DeleteFunc(s.queue, func(c chan delivery) bool { return c == mine })
		s.mu.Unlock()
		select {
		case w = <-mine: // assigned at the same moment
			s.release(w, true)
		default:
		}
		return delivery{}, nil, context.Cause(ctx)
	}
	return w, func(ok bool) { s.release(w, ok) }, nil
}

func (s *spread) release(w delivery, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.from == nil {
		s.uploads--
	} else {
		w.from.inUse--
		w.from.broken = w.from.broken || !ok
	}
	s.assignLocked()
}

// assignLocked assigns deliveries to waiting logins.
func (s *spread) assignLocked() {
	for len(s.queue) > 0 {
		var w delivery
		for _, c := range s.sources {
			if !c.broken && c.inUse < fanOut && (w.from == nil || c.inUse < w.from.inUse) {
				w.from = c
			}
		}
		switch {
		case w.from != nil:
			w.from.inUse++
		case s.uploads < seeds:
			s.uploads++
		default:
			return
		}
		s.queue[0] <- w
		s.queue = s.queue[1:]
	}
}
