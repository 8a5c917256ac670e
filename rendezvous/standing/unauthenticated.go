package standing

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxUnauthenticated bounds the connections that have not authenticated yet.
	maxUnauthenticated = 256
	// maxPerOrigin bounds those from one address, so that a single one cannot keep launchers out.
	maxPerOrigin = 32
	// warnInterval is the least time between warnings about one address.
	warnInterval = time.Minute
)

// unauthenticated counts the connections that have not authenticated yet, by origin. It only decides.
type unauthenticated struct {
	mu     sync.Mutex
	all    int
	of     map[netip.Prefix]int
	warned map[netip.Prefix]time.Time // when a warning about an origin was logged
}

func newUnauthenticated() *unauthenticated {
	return &unauthenticated{of: map[netip.Prefix]int{}, warned: map[netip.Prefix]time.Time{}}
}

// origin returns the address, or for IPv6 the network that the owner of one address usually controls.
func origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	p, _ := ip.Prefix(min(ip.BitLen(), 64))
	return p
}

// admit reports whether one more connection is allowed, and counts it.
func (s *unauthenticated) admit(from netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == maxUnauthenticated || s.of[from] == maxPerOrigin {
		return false
	}
	s.all++
	s.of[from]++
	return true
}

// release removes a connection that has authenticated or ended.
func (s *unauthenticated) release(from netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[from]--; s.of[from] == 0 {
		delete(s.of, from)
	}
}

// warn reports whether to log a warning about an origin now.
func (s *unauthenticated) warn(from netip.Prefix, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, since := range s.warned {
		if now.Sub(since) >= warnInterval {
			delete(s.warned, p)
		}
	}
	if _, recently := s.warned[from]; recently || len(s.warned) == maxUnauthenticated {
		return false
	}
	s.warned[from] = now
	return true
}
