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
	// seeds is how many hosts are sent the binary at once when the others can get it from hosts that have it.
	seeds = 4
	// fanOut is how many hosts get it from one host at once.
	fanOut = 2
)

// spread says how hosts that miss the binary come by it. Logins that lead to one directory, as those of several
// addresses of a machine do or those of hosts with a shared home, get it once: the others wait and look again. Hosts
// may get it from each other (relay): then few uploads are under way at a time, and whoever waits takes what comes
// first, a host that has it or an upload. So what the launcher sends does not grow with the number of hosts, and no
// host waits for one that cannot be reached.
type spread struct {
	mu      sync.Mutex
	places  map[string]*place // by directory
	relay   bool
	uploads int // under way while relay is set
	sources []*source
	queue   []chan way // of those who wait, each with room for its answer
	token   string
}

// place is a directory into which somebody puts the binary.
type place struct {
	done chan struct{}
	ok   bool // it is there, once done is closed
}

// source is a host that hands out the binary.
type source struct {
	address string
	inUse   int
	broken  bool
}

// way is how a host comes by the binary: from another host or, without one, from the launcher.
type way struct{ from *source }

func newSpread() *spread {
	var token [16]byte
	rand.Read(token[:]) // never fails
	return &spread{places: map[string]*place{}, token: hex.EncodeToString(token[:])}
}

// Relay lets hosts that miss the binary get it from others, which Offer names. Those others must send it to whoever
// connects and says the word that Relay returns.
func (c *Client) Relay() (word string) {
	c.spread.mu.Lock()
	defer c.spread.mu.Unlock()
	c.spread.relay = true
	return c.spread.token
}

// Waiting reports whether an offer would find a taker.
func (c *Client) Waiting() bool {
	c.spread.mu.Lock()
	defer c.spread.mu.Unlock()
	return len(c.spread.queue) > 0
}

// Offer says that the binary can be had at host:port.
func (c *Client) Offer(address string) { c.spread.offer(address) }

func (s *spread) offer(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, &source{address: address})
	s.serveLocked()
}

var placeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{16}$`) })

// settle waits for whoever is putting the binary into the same directory. It returns true if it is there now; else the
// caller is to put it there and to call done once, with how that went. A name that means nothing is nobody else's.
func (s *spread) settle(ctx context.Context, sha, name string) (there bool, done func(ok bool), err error) {
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

// enter waits for a way to come by the binary. The caller calls leave when it has gone it, with how that went.
func (s *spread) enter(ctx context.Context) (w way, leave func(ok bool), err error) {
	mine := make(chan way, 1)
	s.mu.Lock()
	if !s.relay {
		s.mu.Unlock()
		return way{}, func(bool) {}, nil
	}
	s.queue = append(s.queue, mine)
	s.serveLocked()
	s.mu.Unlock()
	select {
	case w = <-mine:
	case <-ctx.Done():
		s.mu.Lock()
		s.queue = slices.DeleteFunc(s.queue, func(c chan way) bool { return c == mine })
		s.mu.Unlock()
		select {
		case w = <-mine: // served in the same moment
			s.leave(w, true)
		default:
		}
		return way{}, nil, context.Cause(ctx)
	}
	return w, func(ok bool) { s.leave(w, ok) }, nil
}

func (s *spread) leave(w way, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.from == nil {
		s.uploads--
	} else {
		w.from.inUse--
		w.from.broken = w.from.broken || !ok
	}
	s.serveLocked()
}

// serveLocked gives those who wait what there is.
func (s *spread) serveLocked() {
	for len(s.queue) > 0 {
		var w way
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
