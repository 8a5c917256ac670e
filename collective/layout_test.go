package collective_test

import (
	"strings"
	"testing"

	"gorun/collective"
)

// Rows without bytes may be more than a number holds when all ranks bring theirs.
func TestTooManyRows(t *testing.T) {
	for _, l := range []layout{even(1, 3), even(3, 1)} {
		c := newCluster(t, l, 1, collective.Config{})
		for _, p := range c.everywhere(gather(1<<62, 0)) {
			if r := p.wait(); r.Err == nil || !strings.Contains(r.Err.Error(), "does not fit any memory") {
				t.Errorf("%v: 3 times 2^62 rows are %v, error %v", l, r.Shape, r.Err)
			}
		}
		for _, p := range c.everywhere(gather(1<<60, 0)) {
			if r := p.good(); r.Shape[0] != 3<<60 {
				t.Errorf("%v: 3 times 2^60 rows are %v", l, r.Shape)
			}
		}
	}
}
