package measure_test

import (
	"net/netip"
	"testing"

	"gorun/topology/measure"
)

// TestPath is the way to this machine itself, which carries 65536 bytes and not one more; what is lost on other ways is seen
// in TestDoctorSeesLostJumboFrames.
func TestPath(t *testing.T) {
	for asked, want := range map[int]int{1500: 1500, 9000: 9000, 600: 600} {
		if got, err := measure.Path(t.Context(), netip.MustParseAddr("127.0.0.1"), asked); got != want || err != nil {
			t.Errorf("packets of %d bytes: %d arrive, %v", asked, got, err)
		}
	}
}
