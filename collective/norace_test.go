//go:build !race

package collective_test

import (
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/schedule"
)

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

// TestLinksAllocateNothing: nor between hosts, whatever the algorithm. A pool may forget something now and
// then, and the links have timers of their own, so that it is not exactly nothing, the less so the busier the
// machine is: the best of some attempts counts.
func TestLinksAllocateNothing(t *testing.T) {
	for _, by := range append(schedule.Algorithms(), schedule.Auto) {
		w := newRealWorld(t, 3, 1, collective.Config{Algorithm: by, Coding: kernel.CodingInt8})
		g := &gang{done: make(chan error, 1)}
		for i, n := range []int{4, 64 << 10, 64 << 10} {
			if g.typ = kernel.Int32; i > 1 {
				g.typ = kernel.Float32 // which is coded
			}
			buffers := [][]byte{make([]byte, n), make([]byte, n), make([]byte, n)}
			round := func() {
				if err := w.round(g, buffers); err != nil {
					t.Fatal(err)
				}
			}
			for range 20 {
				round()
			}
			got := testing.AllocsPerRun(100, round)
			for attempt := 1; attempt < 10 && got >= 4; attempt++ { // the test makes three shapes
				got = min(got, testing.AllocsPerRun(100, round))
			}
			if got >= 4 {
				t.Errorf("%s of %d bytes of %s: %g allocations per operation", by, n, g.typ, got)
			}
		}
	}
}
