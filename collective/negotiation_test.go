package collective_test

import (
	"fmt"
	"slices"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

// Operations do not know how hosts came to start them: with a negotiation that the engine has never heard of they give
// the same results, again and again under the same names, in groups, and where ranks disagree.
func TestNewNegotiation(t *testing.T) {
	for _, l := range []layout{even(1, 3), even(2, 2), {{4, 0}, {2}, {1, 5, 3}}, even(7, 1)} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			c := newCluster(t, l, 5, collective.Config{Segment: 4096})
			var opened []func() int
			for _, e := range c.engines {
				opened = append(opened, collective.UseCentral(e))
			}
			for range 3 {
				var checks []func()
				for _, n := range []int{1, 1000, 30_000} {
					checks = append(checks, c.allreduce(fmt.Sprint("sum", n), kernel.Float32, kernel.Sum, n, 1, 1))
				}
				for _, check := range append(checks, c.alltoall("rows", 3, 1)) {
					check()
				}
			}
			last := l.size() - 1
			if got := c.addGroup([]int{0, last}); got != 1 {
				t.Errorf("the group is number %d", got)
			}
			for wrong := range 2 {
				var promises []*promise
				for _, rank := range []int{0, last} {
					n := 1 + wrong*rank
					b := slices.Repeat([]byte{byte(rank)}, n)
					promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Allreduce, Group: 1,
						Name: "g", Type: kernel.Uint8, Op: kernel.Sum, Shape: []int{n}, In: b, Out: b}))
					defer func() {
						if wrong == 0 && int(b[0]) != last {
							t.Errorf("rank %d has %d in the group", rank, b[0])
						}
					}()
				}
				for _, p := range promises {
					r := p.wait()
					if wrong == 1 && (r.Err == nil || code(t, r.Err) != collective.CodeMismatch) || wrong == 0 && r.Err != nil {
						t.Errorf("%s: %v", p.what, r.Err)
					}
				}
			}
			for host, n := range opened {
				if n() == 0 {
					t.Errorf("host %d opened nothing", host+1)
				}
			}
		})
	}
}

// TestNewNegotiationLeaves: an operation that waits for a rank that has left fails on all hosts.
func TestNewNegotiationLeaves(t *testing.T) {
	for _, l := range []layout{even(1, 3), even(2, 2), {{4, 0}, {2}, {1, 5, 3}}, even(7, 1)} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			c := newCluster(t, l, 6, collective.Config{})
			for _, e := range c.engines {
				collective.UseCentral(e)
			}
			checkLeave(c)
		})
	}
}

// TestNewNegotiationPauses: a pause has one boundary, and the hosts another order afterwards.
func TestNewNegotiationPauses(t *testing.T) {
	c := newCluster(t, even(3, 2), 1, collective.Config{})
	for _, e := range c.engines {
		collective.UseCentral(e)
	}
	for _, p := range c.sums("before", 0, 1, 2, 3, 4, 5) {
		p.wait() // a pause of the first host keeps even what all hosts have declared
	}
	checkPause(c, nil)
	c.allreduce("in another order", kernel.Float32, kernel.Sum, 1000, 1, 1)()
}
