package standing

import (
	"net/netip"
	"testing"
	"time"
)

// TestWarnings: no address fills the log, and many do not take all memory.
func TestWarnings(t *testing.T) {
	var w recent[netip.Prefix]
	warn := func(from netip.Prefix, now time.Time) bool {
		first, room := w.first(from, now, warnInterval)
		return first && room
	}
	from := func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
	}
	now := time.Now()
	for i := range 2 * maxRecent {
		if warned := warn(from(i), now); warned != (i < maxRecent) {
			t.Errorf("of number %d a warning: %v", i, warned)
		}
	}
	if warn(from(0), now.Add(warnInterval-1)) || !warn(from(0), now.Add(warnInterval)) || len(w.last) != 1 {
		t.Error("of one it is said more often than every minute, or less, or all are kept for ever")
	}
}
