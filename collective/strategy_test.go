package collective_test

import (
	"fmt"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

// An algorithm that the engine has never heard of does what all others do, in groups and with ranks that joined, too.
func TestNewStrategy(t *testing.T) {
	for _, l := range []layout{even(2, 1), even(3, 2), {{4, 0}, {2}, {1, 5, 3}}, even(7, 1)} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			c := newCluster(t, l, 5, collective.Config{Segment: 4096, Direct: -1})
			for _, e := range c.engines {
				collective.PreferStar(e)
			}
			var checks []func()
			for _, n := range []int{1, 7, 1000, 30_000} {
				for _, op := range ops {
					checks = append(checks, c.allreduce(fmt.Sprint(op, n), kernel.Float32, op, n, 1, 1))
				}
			}
			for _, check := range checks {
				check()
			}
			// The steps are those of the star: every other host sends the first one everything, once, and gets it once.
			before := c.mesh.dataSent()
			const n = 30_000
			c.allreduce("counted", kernel.Float32, kernel.Sum, n, 1, 1)()
			if got, want := c.mesh.dataSent()-before, 2*4*n*(len(l)-1); got != want {
				t.Errorf("%d bytes were sent, a star sends %d", got, want)
			}
		})
	}
}
