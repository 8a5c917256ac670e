// Package spread decides from where each of many hosts gets the same bytes: from the launcher, or from a host that has them
// already. It moves none itself.
package spread

import (
	"context"
	"slices"
	"sync"
)

// FanOut is how many hosts one host serves at once.
const FanOut = 2

// Spread assigns sources to hosts in the order in which they come. Few of them get the bytes from the launcher at a time,
// and none once a host can serve them. So the launcher's traffic does not grow with the number of hosts.
type Spread struct {
	Seeds int // how many hosts the launcher serves at once

	mu      sync.Mutex
	uploads int // hosts that the launcher serves
	sources []*source
	queue   []chan *source // waiting hosts, each with room for its answer
}

// source is a host that serves the bytes.
type source struct {
	address string
	inUse   int
	broken  bool
}

// Offer announces that host:port serves the bytes.
func (s *Spread) Offer(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, &source{address: address})
	s.assignLocked()
}

// Acquire waits for a source: the address of a host, or "" for the launcher. The caller calls release afterwards, with the
// result.
func (s *Spread) Acquire(ctx context.Context) (address string, release func(ok bool), err error) {
	mine := make(chan *source, 1)
	s.mu.Lock()
	s.queue = append(s.queue, mine)
	s.assignLocked()
	s.mu.Unlock()
	var from *source
	select {
	case from = <-mine:
	case <-ctx.Done():
		s.mu.Lock()
		s.queue = slices.DeleteFunc(s.queue, func(c chan *source) bool { return c == mine })
		s.mu.Unlock()
		select {
		case from = <-mine: // assigned at the same moment
			s.release(from, true)
		default:
		}
		return "", nil, context.Cause(ctx)
	}
	if from != nil {
		address = from.address
	}
	return address, func(ok bool) { s.release(from, ok) }, nil
}

func (s *Spread) release(from *source, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from == nil {
		s.uploads--
	} else {
		from.inUse--
		from.broken = from.broken || !ok
	}
	s.assignLocked()
}

// assignLocked assigns sources to waiting hosts.
func (s *Spread) assignLocked() {
	for len(s.queue) > 0 {
		var from *source
		sound := false
		for _, c := range s.sources {
			sound = sound || !c.broken
			if !c.broken && c.inUse < FanOut && (from == nil || c.inUse < from.inUse) {
				from = c
			}
		}
		switch {
		case from != nil:
			from.inUse++
		case s.uploads < s.Seeds && !sound:
			s.uploads++
		default:
			return
		}
		s.queue[0] <- from
		s.queue = s.queue[1:]
	}
}
