//go:build !race

package topology

import (
	"testing"
	"time"
)

// TestLargeClustersInTime is TestBetterThanOthers for the largest clusters, each of whose rings takes some 100 ms on a
// machine with nothing else to do (make rings), and here not more than three times that.
func TestLargeClustersInTime(t *testing.T) {
	const limit = 300 * time.Millisecond
	if longest := compare(t, []int{512, 1024}); longest >= limit {
		t.Errorf("a ring of 1,024 hosts takes %v, should be less than %v", longest, limit)
	}
}
