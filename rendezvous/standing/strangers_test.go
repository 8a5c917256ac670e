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

// TestStrangers: one address keeps no other out, many do not take all memory, and nobody fills the log.
func TestStrangers(t *testing.T) {
	s := newStrangers()
	from := func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
	}
	for i := range mostOfOne {
		if !s.enter(from(0)) {
			t.Fatalf("number %d of one address does not enter", i)
		}
	}
	if s.enter(from(0)) {
		t.Error("one address has no bound")
	}
	n := mostOfOne
	for ; s.enter(from(n)); n++ {
	}
	if n != mostStrangers {
		t.Errorf("%d enter", n)
	}
	s.leave(from(0))
	if s.enter(from(1)); s.all != mostStrangers || s.of[from(0)] != mostOfOne-1 {
		t.Errorf("one has left: %d, %d of them from there", s.all, s.of[from(0)])
	}

	now := time.Now()
	for i := range 2 * mostStrangers {
		if told := s.tell(from(i), now); told != (i < mostStrangers) {
			t.Errorf("of number %d something is said: %v", i, told)
		}
	}
	if s.tell(from(0), now.Add(silentFor-1)) || !s.tell(from(0), now.Add(silentFor)) || len(s.told) != 1 {
		t.Error("of one it is said more often than every minute, or less, or all are kept for ever")
	}
}
