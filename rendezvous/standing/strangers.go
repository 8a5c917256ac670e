package standing

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// mostStrangers bounds the connections that have not proven themselves yet.
	mostStrangers = 256
	// mostOfOne bounds those from one address, so that it takes more than one to keep launchers out.
	mostOfOne = 32
	// silentFor is how long no more is said of strangers from one address.
	silentFor = time.Minute
)

// strangers are the connections that have not proven themselves yet, by where they come from. It only decides.
type strangers struct {
	mu   sync.Mutex
	all  int
	of   map[netip.Prefix]int
	told map[netip.Prefix]time.Time // of whom something was said, and when
}

func newStrangers() *strangers {
	return &strangers{of: map[netip.Prefix]int{}, told: map[netip.Prefix]time.Time{}}
}

// origin is an address, or of IPv6 the network that whoever has one address in it has all of.
func origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	p, _ := ip.Prefix(min(ip.BitLen(), 64))
	return p
}

// enter reports whether there is room for one more.
func (s *strangers) enter(from netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == mostStrangers || s.of[from] == mostOfOne {
		return false
	}
	s.all++
	s.of[from]++
	return true
}

// leave is for one that has entered: it has proven itself, or is gone.
func (s *strangers) leave(from netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[from]--; s.of[from] == 0 {
		delete(s.of, from)
	}
}

// tell reports whether to say something of one.
func (s *strangers) tell(from netip.Prefix, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, since := range s.told {
		if now.Sub(since) >= silentFor {
			delete(s.told, p)
		}
	}
	if _, told := s.told[from]; told || len(s.told) == mostStrangers {
		return false
	}
	s.told[from] = now
	return true
}
