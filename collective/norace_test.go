//go:build !race

package collective_test

import "testing"

// TestLocalAllocatesNothing: nothing is allocated per operation on one host. Under the race detector pools
// forget what they hold, so it is built without.
func TestLocalAllocatesNothing(t *testing.T) {
	for _, n := range []int{4, 1 << 20} {
		l := newLocal(t, 2, n)
		if got := testing.AllocsPerRun(200, l.round); got >= 1 {
			t.Errorf("%d bytes: %g allocations per operation", n, got)
		}
	}
}
