package standing

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestOrigin(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:5":             "10.0.0.1/32",
		"[::ffff:10.0.0.1]:5":    "10.0.0.1/32",
		"[2001:db8:1:2:3::4]:5":  "2001:db8:1:2::/64",
		"[fe80::1%lo]:5":         "fe80::/64",
		"[2001:db8:1:2::ffff]:6": "2001:db8:1:2::/64",
	} {
		if got := origin(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got.String() != want {
			t.Errorf("%s comes from %v, want %s", addr, got, want)
		}
	}
}

// TestUnauthenticated: one address keeps no other out, many do not take all memory, and none fills the log.
func TestUnauthenticated(t *testing.T) {
	s := newUnauthenticated()
	from := func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
	}
	for i := range maxPerOrigin {
		if !s.admit(from(0)) {
			t.Fatalf("number %d of one address does not enter", i)
		}
	}
	if s.admit(from(0)) {
		t.Error("one address has no bound")
	}
	n := maxPerOrigin
	for ; s.admit(from(n)); n++ {
	}
	if n != maxUnauthenticated {
		t.Errorf("%d enter", n)
	}
	s.release(from(0))
	if s.admit(from(1)); s.all != maxUnauthenticated || s.of[from(0)] != maxPerOrigin-1 {
		t.Errorf("one has left: %d, %d of them from there", s.all, s.of[from(0)])
	}

	now := time.Now()
	for i := range 2 * maxUnauthenticated {
		if told := s.warn(from(i), now); told != (i < maxUnauthenticated) {
			t.Errorf("of number %d something is said: %v", i, told)
		}
	}
	if s.warn(from(0), now.Add(warnInterval-1)) || !s.warn(from(0), now.Add(warnInterval)) || len(s.warned) != 1 {
		t.Error("of one it is said more often than every minute, or less, or all are kept for ever")
	}
}
