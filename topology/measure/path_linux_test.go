package measure_test

import (
	"net/netip"
	"testing"

	"gorun/topology/measure"
)

// TestPath is the way to this machine itself, of which packets are 65535 bytes at most, as IPv4 writes their length; what is
// lost on other ways is seen in TestDoctorSeesLostJumboFrames.
func TestPath(t *testing.T) {
	for asked, want := range map[int]int{1500: 1500, 9000: 9000, 600: 600, 65536: 9000} {
		if got, err := measure.Path(t.Context(), netip.MustParseAddr("127.0.0.1"), asked); got != want || err != nil {
			t.Errorf("packets of %d bytes: %d arrive, %v", asked, got, err)
		}
	}
}
