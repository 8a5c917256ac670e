package collective_test

import (
	"strings"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

// Rows without bytes may be more than a number holds when all ranks bring theirs.
func TestTooManyRows(t *testing.T) {
	for _, l := range []layout{even(1, 3), even(3, 1)} {
		c := newCluster(t, l, 1, collective.Config{})
		gather := func(rows int) []*promise {
			return c.everywhere(collective.Request{Kind: collective.Allgather, Name: "x", Type: kernel.Uint8, Op: kernel.Sum, Shape: []int{rows, 0}})
		}
		for _, p := range gather(1 << 62) {
			if r := p.wait(); r.Err == nil || !strings.Contains(r.Err.Error(), "does not fit any memory") {
				t.Errorf("%v: 3 times 2^62 rows are %v, error %v", l, r.Shape, r.Err)
			}
		}
		for _, p := range gather(1 << 60) {
			if r := p.good(); r.Shape[0] != 3<<60 {
				t.Errorf("%v: 3 times 2^60 rows are %v", l, r.Shape)
			}
		}
	}
}
